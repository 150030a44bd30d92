# Installs libkvjit.so, its headers, the command `kvjit` with its manual page and completions, and the files for
# find_package(kvjit) and pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set_target_properties(kvjit_shared PROPERTIES EXPORT_NAME kvjit)
target_include_directories(kvjit_shared INTERFACE "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
install(TARGETS kvjit_shared EXPORT kvjit LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(TARGETS kvjit RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")

# The command prints its manual page and the completions of shells.
set(printed_files "")
function(kvjit_prints file folder)  # more arguments: the verb
  set(path "${CMAKE_CURRENT_BINARY_DIR}/share/${file}")
  add_custom_command(OUTPUT "${path}" COMMAND kvjit ${ARGN} > "${path}" DEPENDS kvjit VERBATIM)
  install(FILES "${path}" DESTINATION "${CMAKE_INSTALL_DATADIR}/${folder}")
  set(printed_files ${printed_files} "${path}" PARENT_SCOPE)
endfunction()
file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/share")
kvjit_prints(kvjit.1 man/man1 man)
kvjit_prints(kvjit bash-completion/completions completion bash)
kvjit_prints(_kvjit zsh/site-functions completion zsh)
kvjit_prints(kvjit.fish fish/vendor_completions.d completion fish)
add_custom_target(kvjit_printed ALL DEPENDS ${printed_files})

install(FILES runtime/kvjit.h runtime/kvjit.hpp DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")

set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/kvjit")
install(EXPORT kvjit FILE kvjitTargets.cmake NAMESPACE kvjit:: DESTINATION "${package_folder}")
configure_package_config_file(runtime/package/kvjitConfig.cmake.in kvjitConfig.cmake
                              INSTALL_DESTINATION "${package_folder}")
# Until 1.0 a minor version may change functions.
write_basic_package_version_file(kvjitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/kvjitConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/kvjitConfigVersion.cmake"
  DESTINATION "${package_folder}")

file(RELATIVE_PATH KVJIT_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(runtime/package/kvjit.pc.in kvjit.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/kvjit.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
