// See health.h. One function per check.
#include "src/topology/sources/health.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "src/topology/graph/paths.h"
#include "src/topology/sources/rates.h"
#include "src/topology/sources/sysfs_host.h"

namespace weft {
namespace {

const std::string kDevices = "/sys/bus/pci/devices/";

struct Examiner {
  const Machine& machine;
  const Sysfs sysfs;
  std::vector<Finding> findings;
  std::vector<int> gpu = gpus(machine), nic = nodes_of(machine, NodeType::kNic);

  void good(std::string what) { findings.push_back({Verdict::kGood, std::move(what), "", ""}); }
  void bad(Verdict verdict, std::string what, std::string cost, std::string fix) {
    findings.push_back({verdict, std::move(what), std::move(cost), std::move(fix)});
  }
  bool rdma() const {
    return std::any_of(nic.begin(), nic.end(), [&](int i) { return machine.nodes[i].us < 5; });
  }

  void driver() {
    if (gpu.empty()) return good("no GPUs: host mode");
    const bool silent = std::any_of(
        machine.notes.begin(), machine.notes.end(),
        [](const auto& note) { return note.find("no NVIDIA driver") != std::string::npos; });
    const auto amd = fact(machine.nodes[gpu[0]], "vendor") == "0x1002";
    if (silent && !amd)
      return bad(
          Verdict::kTrouble, fmt::format("{} GPUs, but no NVIDIA driver answers", gpu.size()),
          "GPUs cannot be used", "install or load the driver; in a container pass --gpus all");
    good(fmt::format("{} GPUs, {}", gpu.size(), machine.nodes[gpu[0]].model));
  }

  void gpu_direct() {
    if (gpu.empty() || !rdma()) return;
    const std::string way = gpudirect(sysfs);
    if (!way.empty()) return good("GPUDirect RDMA by " + way);
    bad(Verdict::kTrouble, "no GPUDirect RDMA: neither nvidia_peermem nor dmabuf",
        "every message is staged in host memory: a NIC's rate is shared with two PCIe copies, and "
        "each hop takes some 10 us more",
        "modprobe nvidia_peermem, or the open kernel modules on Linux 5.12 or newer");
  }

  void iommu() {
    const bool on = !sysfs.list("/sys/class/iommu").empty();
    if (gpu.size() < 2 && !(rdma() && !gpu.empty())) return;
    if (!on) return good("IOMMU off");
    const bool passthrough = sysfs.line("/proc/cmdline").find("iommu=pt") != std::string::npos;
    if (passthrough) return good("IOMMU in pass-through mode");
    bad(Verdict::kAdvice, "IOMMU on, not in pass-through mode",
        "peer-to-peer traffic may be sent through the root complex, at half the rate or less, or "
        "fail",
        "boot with iommu=pt, or turn it off in the BIOS");
  }

  // Access Control Services of a bridge: extended capability 0x0d. Control bits 2 and 3 redirect
  // requests and completions to the root. -1: cannot be read.
  int acs_of(const std::string& bus) const {
    const std::string space = sysfs.text(kDevices + bus + "/config");
    if (space.size() < 0x110) return -1;
    const auto word = [&](size_t at) -> unsigned {
      if (at + 4 > space.size()) return 0;
      unsigned value = 0;
      for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(space[at + i]);
      return value;
    };
    size_t at = 0x100;
    for (int hops = 0; at >= 0x100 && hops < 64; hops++) {
      const unsigned header = word(at);
      if ((header & 0xffff) == 0x000d) return (word(at + 4) >> 16 & 0x0c) != 0 ? 1 : 0;
      at = header >> 20;
    }
    return 0;
  }

  void acs() {
    if (gpu.size() < 2) return;
    int on = 0, seen = 0, unreadable = 0;
    std::string first;
    for (const auto& bus : sysfs.list("/sys/bus/pci/devices")) {
      if (sysfs.line(kDevices + bus + "/class").compare(0, 6, "0x0604") != 0) continue;
      seen++;
      const int state = acs_of(bus);
      if (state < 0) unreadable++;
      if (state == 1 && on++ == 0) first = bus;
    }
    if (seen == 0) return;
    if (on > 0)
      return bad(
          Verdict::kTrouble, fmt::format("ACS redirects on {} PCIe bridges ({}...)", on, first),
          "GPUs below one switch reach each other through the CPU: bandwidth halves, and behind "
          "some IOMMUs data is lost",
          "turn ACS off in the BIOS, or: setpci -s " + first + " ECAP_ACS+0x6.w=0000");
    if (unreadable > 0)
      return bad(Verdict::kUnknown, "ACS state of PCIe bridges needs root to read", "",
                 "run weft doctor as root once");
    good("ACS does not redirect");
  }

  void peer_access() {
    const auto blind = std::count_if(gpu.begin(), gpu.end(),
                                     [&](int i) { return fact(machine.nodes[i], "p2p") == "0"; });
    if (blind == 0) return;
    bad(Verdict::kAdvice, fmt::format("{} GPUs have no peer-to-peer access", blind),
        "data between GPUs is copied through host memory",
        "nothing on cards whose driver forbids it (4090, L20...): Weft stages in the nearest NUMA "
        "node; in MIG mode: turn MIG off");
  }

  void sharing() {
    if (gpu.empty()) return;
    const char* folder = secure_getenv("CUDA_MPS_PIPE_DIRECTORY");
    const std::string pipe =
        std::string(folder != nullptr ? folder : "/tmp/nvidia-mps") + "/control";
    if (sysfs.exists(pipe)) return good("MPS is running");
    bad(Verdict::kAdvice, "MPS is not running",
        "only where processes share a GPU: they take turns of milliseconds, 4.4 ms instead of 0.8 "
        "us "
        "for one round trip",
        "nvidia-cuda-mps-control -d, or ranks as threads of one process");
  }

  void locked_memory() {
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == RLIM_INFINITY) return good("locked memory is unlimited");
    const bool needed = rdma();
    bad(needed ? Verdict::kTrouble : Verdict::kAdvice,
        fmt::format("locked memory is limited to {} KiB", limit.rlim_cur >> 10),
        needed ? "RDMA cannot register its buffers: init fails" : "none without RDMA",
        "ulimit -l unlimited, memlock in /etc/security/limits.conf, docker --ulimit memlock=-1");
  }

  void open_files() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= 4096) return good(fmt::format("{} open files allowed", limit.rlim_cur));
    bad(Verdict::kAdvice, fmt::format("only {} open files are allowed", limit.rlim_cur),
        "every peer takes some: about 200 ranks fit", "ulimit -n 65536");
  }

  void shared_memory() {
    struct statvfs status {};
    if (statvfs("/dev/shm", &status) != 0)
      return bad(Verdict::kAdvice, "/dev/shm is not there",
                 "Weft does not need it; PyTorch's loaders and NCCL do",
                 "mount it: docker --shm-size=8g");
    const auto mib = static_cast<uint64_t>(status.f_blocks) * status.f_frsize >> 20;
    if (mib >= 1024) return good(fmt::format("/dev/shm has {} MiB", mib));
    bad(Verdict::kAdvice, fmt::format("/dev/shm has only {} MiB", mib),
        "Weft does not need it, but PyTorch's data loaders and NCCL run out",
        "docker --shm-size=8g, or --ipc=host");
  }

  void numa() {
    if (gpu.empty()) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return;
    std::set<int> mine;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
      if (!CPU_ISSET(cpu, &set)) continue;
      for (const auto& name : sysfs.list(fmt::format("/sys/devices/system/cpu/cpu{}", cpu)))
        if (name.compare(0, 4, "node") == 0) mine.insert(std::atoi(name.c_str() + 4));
      if (cpu > 1024) break;
    }
    if (mine.empty()) return;
    std::string far;
    for (const int i : gpu)
      if (machine.nodes[i].numa >= 0 && mine.count(machine.nodes[i].numa) == 0)
        far += fmt::format("{}{}", far.empty() ? "" : ", ", machine.nodes[i].id);
    if (far.empty()) return good("this process may run next to every GPU");
    bad(Verdict::kAdvice, fmt::format("this process is bound away from the NUMA nodes of {}", far),
        "proxies and staging buffers sit across the socket link",
        "bind each rank to its GPU's NUMA node: numactl --cpunodebind, mpirun --map-by numa");
  }

  void link_widths() {
    bool slow = false;
    for (size_t i = 0; i < machine.nodes.size(); i++) {
      const Node& node = machine.nodes[i];
      if (node.pci.empty() || (node.type != NodeType::kGpu && node.type != NodeType::kNic))
        continue;
      const std::string folder = kDevices + node.pci;
      const double now = sysfs.number(folder + "/current_link_width", 0);
      const double most = sysfs.number(folder + "/max_link_width", 0);
      if (now <= 0 || most <= 0 || most > 32 || now >= most) continue;
      slow = true;
      bad(Verdict::kTrouble,
          fmt::format("{} ({}) runs on x{} of x{} lanes", node.id, node.pci, now, most),
          fmt::format("{:.0f}% of its PCIe bandwidth", 100 * now / most),
          "reseat the card, look at the riser and at the slot's wiring");
    }
    for (const int i : nic)
      for (const auto& link : machine.links) {
        if (link.to != i || link.type != LinkType::kPcie) continue;
        if (link.gbps >= machine.nodes[i].gbps * 0.9) continue;
        slow = true;
        bad(Verdict::kTrouble,
            fmt::format("{}: PCIe gives {:.3g} GB/s to a port of {:.3g} GB/s", machine.nodes[i].id,
                        link.gbps, machine.nodes[i].gbps),
            "the port cannot be filled", "a slot of more lanes or a newer generation");
      }
    for (const auto& note : machine.notes)
      if (note.find("NVLinks are down") != std::string::npos) {
        slow = true;
        bad(Verdict::kTrouble, note, "these links carry nothing",
            "nvidia-smi nvlink -s; with NVSwitch: is nvidia-fabricmanager running?");
      }
    if (!slow && (!gpu.empty() || !nic.empty())) good("PCIe links and NVLinks run at full width");
  }

  void nic_distance() {
    if (gpu.empty()) return;
    if (nic.empty())
      return bad(Verdict::kAdvice, "no NIC with a link", "this host cannot join others", "");
    std::string far;
    for (const auto& choice : nic_affinity(machine))
      if (choice.nic >= 0 && choice.direct.path_class >= PathClass::kSockets)
        far += fmt::format("{}{}", far.empty() ? "" : ", ", machine.nodes[choice.gpu].id);
    if (far.empty()) return good("every GPU has a NIC on its own socket");
    bad(Verdict::kAdvice, fmt::format("{}: the nearest NIC is across the sockets", far),
        "the socket link is narrow and shared; where NVLink leads to a GPU near the NIC, Weft "
        "relays",
        "a second NIC on the other socket, or pipeline stages in the order `weft topo` gives");
  }

  void roce() {
    for (const int i : nic) {
      const Node& node = machine.nodes[i];
      if (fact(node, "link_layer") == "Ethernet" && fact(node, "gids") == "0")
        bad(Verdict::kTrouble, node.id + ": RoCE port without a GID", "no connection can be made",
            "give its interface an IP address");
    }
  }

  void guesses() {
    const bool guest = sysfs.text("/proc/cpuinfo").find(" hypervisor") != std::string::npos;
    const auto lies =
        std::count_if(machine.notes.begin(), machine.notes.end(),
                      [](const auto& note) { return note.find("taken as") != std::string::npos; });
    if (lies == 0) return good("nothing about this machine had to be guessed");
    bad(Verdict::kAdvice,
        fmt::format("{} things about this machine were guessed{} (weft topo: notes)", lies,
                    guest ? ", it is virtual" : ""),
        "plans may be made for links that are not there",
        "a topology file of the cloud's in NCCL_TOPO_FILE");
  }
};

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "ok";
    case Verdict::kUnknown:
      return "unknown";
    case Verdict::kAdvice:
      return "advice";
    case Verdict::kTrouble:
      return "trouble";
  }
  return "";
}

std::vector<Finding> examine(const Machine& machine, const Discovery& how) {
  Examiner examiner{machine, Sysfs(how.root), {}};
  examiner.driver();
  examiner.peer_access();
  examiner.link_widths();
  examiner.nic_distance();
  examiner.gpu_direct();
  examiner.iommu();
  examiner.acs();
  examiner.roce();
  examiner.numa();
  examiner.sharing();
  examiner.locked_memory();
  examiner.open_files();
  examiner.shared_memory();
  examiner.guesses();
  return std::move(examiner.findings);
}

}  // namespace weft
