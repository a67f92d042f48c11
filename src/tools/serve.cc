// weft serve: this host helps the ranks of other hosts.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sched.h>

#include <cstdlib>
#include <limits>
#include <memory>

#include "src/base/error.h"
#include "src/base/process_cores.h"
#include "src/comm/help_service.h"
#include "src/tools/commands.h"
#include "src/transport/acceptor.h"

namespace weft {
namespace {

struct ServeOptions {
  std::string address = "0.0.0.0:29519";
  uint64_t memory = uint64_t{4} << 30;
  int cores = 0, communicators = 0;
};

// The first so many cores that this process may use. Threads that start later inherit them.
int keep_to(int cores) {
  cpu_set_t all = cores_of_process(), some;
  if (cores == 0 || cores >= CPU_COUNT(&all)) return CPU_COUNT(&all);
  CPU_ZERO(&some);
  for (int core = 0; CPU_COUNT(&some) < cores; core++)
    if (CPU_ISSET(core, &all)) CPU_SET(core, &some);
  if (sched_setaffinity(0, sizeof some, &some) != 0)
    fail(ncclSystemError, "--cores: the kernel refuses it");
  return cores;
}

void serve(const ServeOptions& options) {
  setenv("WEFT_HOST_MODE", "1", 1);
  const int cores = keep_to(options.cores);
  const Config config = Config::from_environment();
  config.require_valid();
  if (config.secret.empty())
    fail(ncclInvalidUsage, "WEFT_SECRET is not set: ranks and helpers prove that they know it");
  const auto say = [](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  };
  HelpService service(config.secret, options.memory, say);
  const Address address = parse_address(options.address);
  Acceptor::instance().listen_at(address, in_seconds(10));
  say(fmt::format("serves at {} with {} core{} and {} MiB", describe(address), cores,
                  cores == 1 ? "" : "s", options.memory >> 20));
  service.wait_for(options.communicators > 0 ? static_cast<uint64_t>(options.communicators)
                                             : std::numeric_limits<uint64_t>::max());
}

}  // namespace

void add_serve(Command& program) {
  const auto options = std::make_shared<ServeOptions>();
  Command command = program.add_command(
      "serve", "sums for ranks on other hosts that name this one in WEFT_HELPERS (host mode)");
  command.add_option("address", options->address, "host:port to serve at").with_default();
  command.add_option("--memory", options->memory, "most memory of all communicators; K, M, G")
      .in_bytes();
  command.add_option("--cores", options->cores, "cores to use; 0: all").between(0, 1 << 16);
  command
      .add_option("--communicators", options->communicators,
                  "ends after so many communicators; 0: never")
      .between(0, 1 << 30);
  command.calls([options] { serve(*options); });
}

}  // namespace weft
