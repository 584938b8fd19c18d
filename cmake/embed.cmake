# Embeds the files of a web page in the program.
#
# talon_embed_page(TARGET FOLDER): adds to TARGET a generated source that defines talon::PageFiles()
# (src/serve/http/page_files.h) with every file of FOLDER. The source is made anew when one changes.
#
# Run as a script (cmake -DFOLDER=... -DOUTPUT=... -P embed.cmake) this file writes that source.

set(TALON_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(talon_embed_page target folder)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/page_files.cc)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${folder} -DOUTPUT=${output} -P ${TALON_EMBED_SCRIPT}
    DEPENDS ${files} ${TALON_EMBED_SCRIPT}
    COMMENT "Embedding the page" VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

# The content type of a file, by its ending.
function(talon_content_type name result)
  set(css "text/css")
  set(html "text/html")
  set(js "text/javascript")
  set(svg "image/svg+xml")
  get_filename_component(ending ${name} LAST_EXT)
  string(SUBSTRING "${ending}" 1 -1 ending)
  if(NOT ending MATCHES "^(css|html|js|svg)$")
    message(FATAL_ERROR "page: ${name}: no content type is known for it")
  endif()
  set(${result} "${${ending}}; charset=utf-8" PARENT_SCOPE)
endfunction()

# The bytes of a file as a comma-separated list of numbers, 24 in a line. Bytes and not a string
# literal: compilers may limit the length of a literal, and no content needs escaping.
function(talon_bytes_of path result)
  file(READ ${path} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(REPEAT "....," 24 line)
  string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
  set(${result} "${bytes}" PARENT_SCOPE)
endfunction()

function(talon_write_page_files folder output)
  file(GLOB names RELATIVE ${folder} ${folder}/*)
  set(arrays "")
  set(table "")
  set(index 0)
  foreach(name IN LISTS names)
    string(REGEX REPLACE "^index\\.html$" "" path ${name})
    talon_content_type(${name} content_type)
    talon_bytes_of(${folder}/${name} bytes)
    string(APPEND arrays "constexpr unsigned char kFile${index}[] = {  // ${name}\n${bytes}};\n")
    string(APPEND table "      {\"/${path}\", \"${content_type}\", View(kFile${index})},\n")
    math(EXPR index "${index} + 1")
  endforeach()
  file(WRITE ${output} "// Made by cmake/embed.cmake.
#include \"serve/http/page_files.h\"

#include <cstddef>

namespace talon {
namespace {

template <size_t N>
std::string_view View(const unsigned char (&bytes)[N]) {
  return {reinterpret_cast<const char*>(bytes), N};
}

${arrays}
}  // namespace

std::span<const PageFile> PageFiles() {
  static const PageFile files[] = {
${table}  };
  return files;
}

}  // namespace talon
")
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  talon_write_page_files(${FOLDER} ${OUTPUT})
endif()
