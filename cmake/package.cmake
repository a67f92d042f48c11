# Installs Weft, and makes packages that work from any folder: a tarball, and a .deb under /opt/weft.
# Folders are the same on all systems, because the parts look for each other.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # tests need not be built
add_custom_target(package_parts DEPENDS nccl weft)
install(TARGETS nccl LIBRARY DESTINATION lib)
install(FILES include/nccl.h include/nccl_device.h include/nccl_device_kernels.h include/weft.h DESTINATION include)
# The library finds plugins in this folder beside it. The loader finds plugins named without a folder.
set_target_properties(nccl PROPERTIES INSTALL_RPATH "$ORIGIN/plugins")
foreach(plugin nccl-net-weft-socket nccl-net-weft-verbs weft_synthesis_library weft_solver_cbc)
  if(TARGET ${plugin})
    add_dependencies(package_parts ${plugin})
    install(TARGETS ${plugin} LIBRARY DESTINATION lib/plugins)
  endif()
endforeach()
if(NOT WEFT_SANITIZE)  # not the solver: CBC needs libstdc++ anyway
  target_link_options(weft_synthesis_library PRIVATE -static-libstdc++ -static-libgcc)
endif()
# The command brings hwloc in a folder where no other program finds it by accident. It uses DT_RPATH, because hwloc's own
# libraries are there too.
set_target_properties(weft PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/weft:$ORIGIN/../lib/plugins")
target_link_options(weft PRIVATE -Wl,--disable-new-dtags)
install(TARGETS weft RUNTIME_DEPENDENCY_SET weft_needs RUNTIME DESTINATION bin)
install(RUNTIME_DEPENDENCY_SET weft_needs
  PRE_EXCLUDE_REGEXES "^lib(c|m|dl|pthread|rt|stdc[+][+]|gcc_s)[.]so" "^ld-linux" "^lib[at]san"
  LIBRARY DESTINATION lib/weft)
install(DIRECTORY algorithms/catalogue/machines DESTINATION share/weft)
install(FILES README.md CHANGELOG.md LICENSE SECURITY.md DESTINATION share/doc/weft)
install(DIRECTORY docs/ DESTINATION share/doc/weft)
foreach(bundled libhwloc15 libsodium-dev libudev1)  # bundled libraries come with their licences
  install(FILES /usr/share/doc/${bundled}/copyright DESTINATION share/doc/weft RENAME ${bundled}.copyright OPTIONAL)
endforeach()

set(CPACK_PACKAGE_NAME weft)
set(CPACK_PACKAGE_VENDOR "The Weft authors")
set(CPACK_PACKAGE_CONTACT "The Weft authors <weft@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "drop-in libnccl.so.2 that weaves schedules for the machine at hand")
string(TOLOWER "${CMAKE_SYSTEM_NAME}" system)
set(CPACK_PACKAGE_FILE_NAME "weft-${PROJECT_VERSION}-${system}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
# The version of the build machine, which is the oldest version known to work.
execute_process(COMMAND getconf GNU_LIBC_VERSION OUTPUT_VARIABLE glibc OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REGEX MATCH "[0-9.]+" glibc "${glibc}")
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${glibc})")
include(CPack)
