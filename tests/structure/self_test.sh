#!/bin/bash
# Shows that check_structure.sh can fail: a small tree passes, then one planted violation after another fails.
set -u
check=$(dirname "$0")/check_structure.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

fresh() {
  rm -rf "${tree:?}"/*
  mkdir -p "$tree"/{src/{api,base,comm,exec/{host,cuda},planner,schedule,simulator,topology,transport,tools,workload},plugins/{common,net_socket,net_verbs,synthesis},algorithms/generators,perf,tests,include}
  echo '#include "src/comm/communicator.h"' >"$tree/src/api/collectives.cc"
  echo 'extern "C" int f();' >>"$tree/src/api/collectives.cc"
  echo '#include "src/base/error.h"' >>"$tree/src/api/collectives.cc" # reachable, so allowed
  echo '#include "src/exec/executor.h"' >"$tree/src/comm/communicator.cc"
  echo '#include "src/schedule/schedule.h"' >"$tree/algorithms/generators/ring.cc"
  echo '#include "nccl.h"' >"$tree/src/base/error.h"
  echo '#include <cuda_runtime.h>' >"$tree/src/exec/cuda/launch.cc"
  echo '#include "src/planner/planner.h"' >"$tree/src/tools/weft.cc"
  echo '#include "src/api/anything.h"' >"$tree/tests/some_test.cc"
  echo '#include "src/simulator/simulator.h"' >>"$tree/algorithms/generators/ring.cc"
  echo '#include "plugins/net_socket/plugin.h"' >"$tree/src/comm/network_links.cc"
  echo '#include "src/exec/interpreter.h"' >>"$tree/src/exec/cuda/launch.cc"
  echo '#include "plugins/common/errors.h"' >"$tree/plugins/net_verbs/plugin.cc"
  echo '#include "src/base/error.h"' >>"$tree/plugins/net_verbs/plugin.cc"
  echo '#include "algorithms/synth/synthesis.h"' >"$tree/plugins/synthesis/synthesis.cc"
  echo '#include "src/simulator/simulator.h"' >"$tree/src/workload/timeline.cc"
  echo '#include "src/workload/timeline.h"' >>"$tree/src/tools/weft.cc"
  echo 'const char* order = secure_getenv("CUDA_DEVICE_ORDER");' >>"$tree/src/exec/cuda/launch.cc"
  echo '// extern "C" is a comment here, and so is a class FileManager' >"$tree/src/comm/note.h"
  printf '/* also\n extern "C" here */\n' >>"$tree/src/comm/note.h"
}

expect() { # expect pass|fail NAME
  local wanted=$1 name=$2 output
  if output=$("$check" "$tree"); then got=pass; else got=fail; fi
  if [ $got != "$wanted" ]; then
    echo "FAILED: $name should $wanted, output: $output"
    failed=1
  fi
}

plant() { # plant FILE LINE
  fresh
  echo "$2" >>"$tree/$1"
  expect fail "$1: $2"
}

fresh
expect pass "a tree that keeps the laws"
plant src/base/error.h '#include "src/comm/communicator.h"'
plant src/schedule/verify.cc '#include "src/exec/executor.h"'
plant src/schedule/verify.cc '#include "src/topology/graph/machine.h"'
plant src/transport/tcp.cc '#include "src/schedule/schedule.h"'
plant src/exec/host/run.cc '#include "src/comm/group.h"'
plant src/exec/host/run.cc '#include "src/planner/planner.h"'
plant src/planner/planner.cc '#include "src/transport/tcp.h"'
plant src/planner/planner.cc '#include "src/workload/graph.h"'
plant src/comm/communicator.cc '#include "src/workload/graph.h"'
plant src/workload/graph.cc '#include "src/comm/communicator.h"'
plant src/workload/graph.cc '#include "src/exec/executor.h"'
plant src/planner/planner.cc '#include "src/exec/executor.h"'
plant algorithms/generators/ring.cc '#include "src/transport/tcp.h"'
plant algorithms/generators/ring.cc '  #  include   "src/planner/planner.h"'
plant src/topology/machine.cc '#include "algorithms/generators/ring.h"'
plant src/tools/weft.cc '#include "src/api/guard.h"'
plant src/simulator/simulator.cc '#include "algorithms/generators/ring.h"'
plant src/simulator/simulator.cc '#include "src/planner/planner.h"'
plant src/exec/host/run.cc '#include "src/exec/cuda/launch.h"'
plant src/exec/interpreter.h '#include "src/exec/cuda/launch.h"'
plant plugins/net_verbs/plugin.cc '#include "plugins/net_socket/sender.h"'
plant plugins/net_verbs/plugin.cc '#include "src/comm/mesh.h"'
plant plugins/common/errors.cc '#include "plugins/net_socket/sender.h"'
plant plugins/synthesis/synthesis.cc '#include "src/planner/planner.h"'
plant src/comm/group.cc '#include "plugins/net_socket/sender.h"'
plant src/exec/host/run.cc '#include "plugins/net_socket/plugin.h"'
plant src/comm/group.cc '#include "tests/support/case.h"'
plant src/comm/group.cc '#include "group.h"'
plant src/comm/group.cc '#include <src/api/guard.h>'
plant include/weft.h '#include "src/comm/mesh.h"'
plant src/exec/host/run.cc '#include <cuda_runtime.h>'
plant src/comm/group.cc '#include <cuda.h>'
plant src/exec/host/run.cc 'extern "C" void g();'
plant src/comm/group.h 'class GroupManager {'
plant src/comm/group.h 'struct StringUtil;'
plant src/comm/group.cc 'const char* folder = std::getenv("HOME");'
plant plugins/common/errors.cc 'const char* folder = getenv ("HOME");'
long_function() { # long_function LINES
  echo 'int long_one() {'
  for ((i = 2; i < $1; i++)); do echo '  work();'; done
  echo '}'
}
fresh
long_function 80 >"$tree/src/comm/long.cc"
expect pass "a function of 80 lines"
long_function 81 >"$tree/src/comm/long.cc"
expect fail "a function of 81 lines"
{ echo 'int long_one() {' && echo '  const int a[] = {1, 2};' && long_function 90 | sed 1d; } >"$tree/src/comm/long.cc"
expect fail "a function of 91 lines with a table in it"
fresh
{ echo 'const int kTable[] = {' && yes '    1,' | head -90 && echo '};'; } >"$tree/src/comm/table.cc"
expect pass "a table of 90 lines"
fresh
for file in "$tree"/src/*/*.cc "$tree"/src/*/*.h; do yes '// a line' | head -101 >>"$file"; done
expect fail "files of more than 100 lines"
fresh
{ echo 'class Communicator {' && for i in {a..p}; do echo "  int ${i}_;"; done && echo '};'; } >"$tree/src/comm/communicator.h"
expect fail "a communicator of 16 members"
fresh
mkdir -p "$tree/src/helpers" && echo 'int x;' >"$tree/src/helpers/odd.h"
expect fail "a folder the design does not know"
[ $failed = 0 ] && echo "OK: every planted violation was found"
exit $failed
