// See help_talk.h.
#include "src/comm/help_talk.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <span>

#include "algorithms/generators/helped.h"
#include "src/base/error.h"
#include "src/comm/mesh.h"

namespace weft {

Secret help_secret(const std::string& text) { return derive(derive(Secret{}, text), "helpers"); }

Secret helped_secret(const Secret& shared, uint64_t number) {
  return derive(shared, "helped", number);
}

Config helped_config() {
  Config config = Config::from_environment();
  const Config usual;
  for (std::string Config::*text :
       {&Config::plan, &Config::topo, &Config::algo, &Config::proto, &Config::compress,
        &Config::helpers, &Config::schedules, &Config::msccl_xml_files, &Config::msccl_algo_dir,
        &Config::topo_dump_file, &Config::graph_dump_file})
    config.*text = usual.*text;
  for (size_t Config::*bytes :
       {&Config::compress_losses_bytes, &Config::helpers_from, &Config::packet_bytes,
        &Config::cta_bytes, &Config::scratch_bytes, &Config::lane_fifo_bytes, &Config::ring_bytes,
        &Config::slice_bytes, &Config::eager_bytes})
    config.*bytes = usual.*bytes;
  // A stream has one slice on its way, see make_helped().
  config.net_slice_bytes = config.net_sum_slice_bytes = size_t{128} << 10;
  config.net_ring_bytes = size_t{768} << 10;
  config.max_channels = usual.max_channels;
  config.block_share = usual.block_share;
  config.lane_slots = usual.lane_slots;
  config.net_lanes = usual.net_lanes;
  config.straight = usual.straight;
  config.host_mode = true;
  constexpr double kMostInitS = 20;  // ranks can do without helpers
  config.init_timeout_s = std::min(config.init_timeout_s, kMostInitS);
  return config;
}

uint64_t helped_memory(int members) {
  return 2 * (kHelpedChannels + 1) * static_cast<uint64_t>(members - 1) *
         Mesh::ring_bytes_for(helped_config(), members, true);
}

HelpTalk HelpTalk::with(const std::string& address, const Secret& secret, Deadline deadline) {
  Fd fd = connect_tcp(parse_address(address), deadline);
  if (!fd) fail(ncclSystemError, "nobody answers there");
  Purpose purpose;
  purpose.kind = Purpose::kHelp;
  purpose.from_rank = purpose.to_rank = 0;
  const auto session = authenticate(fd.get(), secret, purpose, deadline);
  if (!session)
    fail(ncclSystemError, "no 'weft serve' with the same WEFT_SECRET answers there in time");
  expect_answers(fd.get(), Config::from_environment().peer_timeout_s);
  return {std::move(fd), *session};
}

void HelpTalk::say(const std::string& text, Deadline deadline) {
  const std::string bytes = sealer_.seal({Frame::kHelp, 0, 0, text});
  send_all(fd_.get(), std::as_bytes(std::span(bytes.data(), bytes.size())), deadline);
}

std::string HelpTalk::hear(Deadline deadline) {
  Frame frame;
  while (!reader_.next(frame)) {
    if (reader_.broken()) fail(ncclRemoteError, "what arrives is damaged");
    wait_readable(fd_.get(), deadline, nullptr);
    std::array<char, 4096> some;
    const ssize_t got = recv(fd_.get(), some.data(), some.size(), MSG_DONTWAIT);
    if (got > 0)
      reader_.append(some.data(), static_cast<size_t>(got));
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
      fail(ncclRemoteError, "the other side has closed the connection");
  }
  if (frame.type != Frame::kHelp) fail(ncclRemoteError, "what arrives is no answer");
  return frame.text;
}

}  // namespace weft
