// Where a test's process crashed, on stderr. For machines without a debugger.
#pragma once

namespace weft::test {

// From now on a fatal signal prints the calling functions first. Sanitizers do that themselves.
void trace_crashes();

}  // namespace weft::test
