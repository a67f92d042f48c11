// main() of every perf program. The file linked in decides which collective it measures.
#include <cstdio>

#include "perf/common/device.h"
#include "perf/common/errors.h"
#include "perf/common/feasible.h"
#include "perf/common/session.h"

namespace weft::perf {
namespace {

int run(Process& process, int argc, char** argv) {
  try {
    const Options options = parse_options(argc, argv);
    if (options.help) {
      if (process.prints()) std::printf("%s", help_text(kCollective.program).c_str());
      return kExitOk;
    }
    if (const char* reason = device::unavailable()) throw UsageError(reason);
    check_feasible(process, options);
    return Session(process, options, argc, argv).run();
  } catch (const UsageError& error) {
    // Every process finds the same fault, so one process reports it.
    if (process.prints()) std::fprintf(stderr, "%s: %s\n", kCollective.program, error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    process.fail(kExitLibrary, error.what());
  }
}

}  // namespace
}  // namespace weft::perf

int main(int argc, char** argv) {
  weft::perf::Process process(&argc, &argv);
  return weft::perf::run(process, argc, argv);
}
