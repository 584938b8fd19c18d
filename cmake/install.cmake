# `make install` and `make package`: the program, the bundled models under share/talon, a manual page
# and completion scripts that the program itself writes, the systemd units and the documentation.

include(GNUInstallDirs)

# Written by the program, so that they have the flags of this build.
set(talon_manual ${PROJECT_BINARY_DIR}/manual)
file(MAKE_DIRECTORY ${talon_manual})
function(talon_written_by_itself file)
  add_custom_command(OUTPUT ${talon_manual}/${file}
    COMMAND talon ${ARGN} > ${talon_manual}/${file}
    DEPENDS talon VERBATIM)
endfunction()
talon_written_by_itself(talon.1 man)
talon_written_by_itself(talon.bash completion bash)
talon_written_by_itself(_talon completion zsh)
add_custom_target(manual ALL
  DEPENDS ${talon_manual}/talon.1 ${talon_manual}/talon.bash ${talon_manual}/_talon)

install(TARGETS talon)
install(FILES ${talon_manual}/talon.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${talon_manual}/talon.bash
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME talon)
install(FILES ${talon_manual}/_talon DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)

# Where the program looks for them (BundledFile, src/setup/bundled.h).
install(DIRECTORY models DESTINATION ${CMAKE_INSTALL_DATADIR}/talon)
install(DIRECTORY tests/data/prompts DESTINATION ${CMAKE_INSTALL_DATADIR}/talon/tests/data)
install(FILES tests/data/tasks.jsonl DESTINATION ${CMAKE_INSTALL_DATADIR}/talon/tests/data)

# systemd wants the whole path of a program, which is known when it is installed.
install(CODE "
  foreach(unit talon.service talon-draft.service talon-target.service)
    file(READ ${PROJECT_SOURCE_DIR}/deploy/\${unit} text)
    string(REPLACE ExecStart=/usr/bin \"ExecStart=\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\"
      text \"\${text}\")
    file(WRITE ${PROJECT_BINARY_DIR}/units/\${unit} \"\${text}\")
    file(INSTALL ${PROJECT_BINARY_DIR}/units/\${unit}
      DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/systemd/system\")
  endforeach()")
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md")
install(DIRECTORY deploy/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples
  FILES_MATCHING PATTERN "*.yaml" PATTERN "*.cfg" PATTERN "*.conf")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the Talon project")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Exact speculative decoding of language models")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # finds the libraries' packages with dpkg-shlibdeps
include(CPack)
