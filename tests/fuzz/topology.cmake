# libFuzzer targets for the readers of machines. They need clang, whatever compiles the rest, so their objects are built by
# commands of their own. Corpora: tests/fuzz/corpus/topology_*.
if(WEFT_SANITIZE)
  return()  # they have sanitizers of their own
endif()
set(WEFT_TOPOLOGY_FUZZ_SECONDS 6 CACHE STRING "how long each fuzz target of the topology runs as a test")
find_program(WEFT_FUZZ_CLANG NAMES clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14)
set(topology_fuzz ${CMAKE_CURRENT_LIST_DIR})
set(topology_fuzz_out ${CMAKE_BINARY_DIR}/fuzz-topology)
file(MAKE_DIRECTORY ${topology_fuzz_out})
set(topology_fuzz_flags -std=c++20 -O1 -g1 -fsanitize=fuzzer,address -fno-omit-frame-pointer -I${CMAKE_SOURCE_DIR} -I${CMAKE_SOURCE_DIR}/include)
if(WEFT_FUZZ_CLANG AND NOT DEFINED WEFT_FUZZ_WORKS)
  file(WRITE ${topology_fuzz_out}/probe.cc
    "#include <string>\nextern \"C\" int LLVMFuzzerTestOneInput(const unsigned char*, std::size_t) { return 0; }\n")
  execute_process(COMMAND ${WEFT_FUZZ_CLANG} ${topology_fuzz_flags} probe.cc -o probe RESULT_VARIABLE failed
    WORKING_DIRECTORY ${topology_fuzz_out} OUTPUT_QUIET ERROR_QUIET)
  if(failed EQUAL 0)
    set(WEFT_FUZZ_WORKS ON CACHE INTERNAL "")
  endif()
endif()

set(topology_fuzz_targets json nccl_xml hwloc_xml smi)
if(NOT WEFT_FUZZ_WORKS)
  foreach(target ${topology_fuzz_targets})
    weft_script_test(fuzz_topology_${target} fuzz ${CMAKE_SOURCE_DIR}/tests/support/skip.sh fuzz
      "no clang++ with libFuzzer (clang, libclang-rt-dev)")
  endforeach()
  return()
endif()

function(weft_topology_fuzz_object source out)
  string(MAKE_C_IDENTIFIER ${source} name)
  set(object ${topology_fuzz_out}/${name}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${WEFT_FUZZ_CLANG} ${topology_fuzz_flags} -MD -MF ${object}.d -c
            ${CMAKE_SOURCE_DIR}/${source} -o ${object}
    DEPENDS ${CMAKE_SOURCE_DIR}/${source} DEPFILE ${object}.d VERBATIM)
  set(${out} ${object} PARENT_SCOPE)
endfunction()

set(topology_fuzz_objects)
foreach(source src/base/formatting.cc src/topology/build_machine.cc src/topology/claims.cc src/topology/fingerprint.cc
    src/topology/flow_graph.cc src/topology/host.cc src/topology/hwloc_xml.cc src/topology/machine.cc
    src/topology/machine_json.cc src/topology/nccl_xml.cc src/topology/nccl_xml_writer.cc src/topology/network.cc
    src/topology/rates.cc src/topology/smi_matrix.cc src/topology/virtual_nics.cc src/topology/xml.cc)
  weft_topology_fuzz_object(${source} object)
  list(APPEND topology_fuzz_objects ${object})
endforeach()
foreach(target ${topology_fuzz_targets})
  weft_topology_fuzz_object(tests/fuzz/topology_${target}.cc object)
  set(program ${CMAKE_BINARY_DIR}/bin/fuzz_topology_${target})
  add_custom_command(OUTPUT ${program}
    COMMAND ${WEFT_FUZZ_CLANG} ${topology_fuzz_flags} ${object} ${topology_fuzz_objects} $<TARGET_FILE:pugixml::static>
            -o ${program}
    DEPENDS ${object} ${topology_fuzz_objects} VERBATIM)
  add_custom_target(fuzz_topology_${target} ALL DEPENDS ${program})
  # What is found new is forgotten: a corpus that grows from run to run would slow the test down.
  file(GLOB seeds ${topology_fuzz}/corpus/topology_${target}/*)
  list(JOIN seeds "," seeds)
  add_test(NAME fuzz_topology_${target} COMMAND ${program} -max_total_time=${WEFT_TOPOLOGY_FUZZ_SECONDS} -timeout=5
    -rss_limit_mb=1024 -max_len=8192 -verbosity=0 -print_final_stats=1 -artifact_prefix=${topology_fuzz_out}/
    -seed_inputs=${seeds})
  set_tests_properties(fuzz_topology_${target} PROPERTIES LABELS fuzz TIMEOUT 120
    ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)  # which takes longer than the test, on aarch64
endforeach()
