// See peer_info.h.
#include "src/comm/peer_info.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "src/base/error.h"
#include "src/base/process_cores.h"
#include "src/base/siphash.h"
#include "src/comm/cluster.h"
#include "src/comm/peer_process.h"
#include "src/comm/rendezvous.h"
#include "src/comm/unique_id.h"
#include "src/planner/compression.h"
#include "src/transport/acceptor.h"

namespace weft {
namespace {

constexpr uint32_t kLibraryVersion = 14;  // of the messages between ranks

struct AgreedSetting {
  const char* name;
  std::string value;
};

std::array<AgreedSetting, kAgreedSettings> agreed_settings(const Config& config) {
  return {{{"WEFT_PLAN", config.plan},
           {"WEFT_TOPO", config.topo},
           {"NCCL_ALGO", config.algo},
           {"NCCL_PROTO", config.proto},
           {"NCCL_MAX_NCHANNELS", fmt::format("{}", config.max_channels)},
           {"WEFT_HOST_MODE", fmt::format("{}", config.host_mode)},
           {"WEFT_PACKET_BYTES", fmt::format("{}", config.packet_bytes)},
           {"WEFT_BLOCK_SHARE", fmt::format("{}", config.block_share)},
           {"WEFT_CTA_BYTES", fmt::format("{}", config.cta_bytes)},
           {"WEFT_SCRATCH_BYTES", fmt::format("{}", config.scratch_bytes)},
           {"WEFT_LANE_FIFO_BYTES", fmt::format("{}", config.lane_fifo_bytes)},
           {"WEFT_LANE_SLOTS", fmt::format("{}", config.lane_slots)},
           {"WEFT_EAGER_BYTES", fmt::format("{}", config.eager_bytes)},
           {"WEFT_STRAIGHT", fmt::format("{}", config.straight)},
           {"WEFT_NET_LANES", fmt::format("{}", config.net_lanes)},
           {"WEFT_HELPERS", config.helpers},
           {"WEFT_HELPERS_FROM", fmt::format("{}", config.helpers_from)}}};
}

PeerInfo describe_myself(const Config& config, const ImportedSchedules& imported,
                         const std::string& gpu, const std::string& communicator) {
  PeerInfo mine;
  mine.version = kLibraryVersion;
  mine.pid = getpid();
  mine.host = host_identity(config);
  mine.machine = machine_identity();
  if (!gpu.empty()) mine.view = view_of_host(config);
  // Computed once per process. It inspects all threads, and ranks of one process must agree.
  static const cpu_set_t cores = cores_of_process();
  mine.core_set = siphash(Secret{}, &cores, sizeof cores);
  mine.cores = std::max(1, CPU_COUNT(&cores));
  mine.process = Acceptor::instance().token();
  mine.ring_bytes = config.ring_bytes;
  mine.slice_bytes = config.slice_bytes;
  const auto settings = agreed_settings(config);
  for (size_t i = 0; i < settings.size(); i++)
    mine.settings[i] = siphash(Secret{}, settings[i].value.data(), settings[i].value.size());
  const std::string compression = compression_for(config.compress, communicator);
  mine.compression = siphash(Secret{}, compression.data(), compression.size());
  mine.compress_losses = config.compress_losses_bytes;
  mine.schedules = imported.fingerprint();
  mine.shm_disable = config.shm_disable ? 1 : 0;
  mine.p2p_disable = config.p2p_disable ? 1 : 0;
  mine.pid_namespace = pid_namespace();
  mine.wire = static_cast<int32_t>(wire_of(config.wire));
  std::strncpy(mine.gpu, gpu.c_str(), sizeof mine.gpu - 1);
  const auto addresses = Acceptor::instance().offer(config, std::size(mine.addresses));
  mine.address_count = static_cast<int32_t>(addresses.size());
  std::copy_n(addresses.begin(), mine.address_count, mine.addresses);
  std::strncpy(mine.unix_name, Acceptor::instance().unix_name().c_str(), sizeof mine.unix_name - 1);
  gethostname(mine.host_name, sizeof mine.host_name - 1);
  return mine;
}

void compare(const PeerInfo& first, const PeerInfo& other, int rank, const Config& config) {
  if (other.version != first.version)
    fail(ncclInvalidUsage, "rank {} runs another version of this library than rank 0", rank);
  for (size_t i = 0; i < kAgreedSettings; i++)
    if (other.settings[i] != first.settings[i])
      fail(ncclInvalidUsage, "rank {} has another {} than rank 0: it must be the same on all ranks",
           rank, agreed_settings(config)[i].name);
  if (other.wire != first.wire)
    fail(ncclInvalidUsage,
         "rank {} has WEFT_WIRE={}, rank 0 has WEFT_WIRE={}: it must be the same on all ranks",
         rank, name_of(static_cast<Wire>(other.wire)), name_of(static_cast<Wire>(first.wire)));
  if (other.schedules != first.schedules)
    fail(ncclInvalidUsage,
         "rank {} has other schedules than rank 0 (WEFT_SCHEDULES, MSCCL_XML_FILES, "
         "MSCCL_ALGO_DIR): files and their order must be the same on all ranks",
         rank);
  if (other.ring_bytes != first.ring_bytes || other.slice_bytes != first.slice_bytes)
    fail(ncclInvalidUsage,
         "rank {} has other values of WEFT_RING_BYTES or WEFT_SLICE_BYTES than rank 0: {}/{} and "
         "{}/{}",
         rank, other.ring_bytes, other.slice_bytes, first.ring_bytes, first.slice_bytes);
  if (other.compress_losses != first.compress_losses)
    fail(ncclInvalidUsage,
         "rank {} has WEFT_COMPRESS_LOSSES={}, rank 0 has {}: it must be the same on all ranks",
         rank, other.compress_losses, first.compress_losses);
}

}  // namespace

std::vector<PeerInfo> gather_infos(ControlChannel& control, const Config& config,
                                   const ImportedSchedules& imported, const std::string& gpu,
                                   const std::string& communicator, Deadline deadline) {
  const PeerInfo mine = describe_myself(config, imported, gpu, communicator);
  std::vector<PeerInfo> infos;
  for (const std::string& text : control.all_gather(
           std::string(reinterpret_cast<const char*>(&mine), sizeof mine), deadline)) {
    const auto rank = static_cast<int>(infos.size());
    // The version is the first field in every release.
    const auto info = decode_peer_info(text);
    if (!info)
      fail(ncclInvalidUsage, "rank {} runs another version of this library than rank 0",
           rank == 0 ? 1 : rank);
    infos.push_back(*info);
    compare(infos.front(), *info, rank, config);
  }
  // Only if settings differ, ranks ask for the texts.
  const bool alike = std::all_of(infos.begin(), infos.end(), [&](const PeerInfo& info) {
    return info.compression == infos[0].compression;
  });
  if (!alike)
    compare_compression(
        control.all_gather(compression_for(config.compress, communicator), deadline));
  return infos;
}

void compare_compression(const std::vector<std::string>& texts) {
  for (size_t r = 1; r < texts.size(); r++)
    if (texts[r] != texts[0])
      fail(ncclInvalidUsage,
           "rank {} sets compression '{}', rank 0 sets '{}': it must be the same on all ranks", r,
           texts[r], texts[0]);
}

std::unique_ptr<ControlChannel> join_first_rank(const ControlChannel& control, const Secret& secret,
                                                int rank, const std::vector<PeerInfo>& infos,
                                                Deadline deadline,
                                                ControlChannel::Listener listener,
                                                const Cancelled& cancelled) {
  const PeerInfo& first = infos.front();
  if (control.rendezvous_process() == first.process) return nullptr;
  UniqueId id;
  id.secret = derive(secret, "rendezvous");
  id.host = first.host;
  id.address_count = static_cast<uint8_t>(first.address_count);
  std::copy_n(first.addresses, first.address_count, id.addresses);
  if (rank == 0) Rendezvous::open(id.secret);
  return std::make_unique<ControlChannel>(id.candidates(infos[static_cast<size_t>(rank)].host),
                                          id.secret, rank, static_cast<int>(infos.size()), deadline,
                                          std::move(listener), cancelled);
}

}  // namespace weft
