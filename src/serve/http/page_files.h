// The files of the page at `/`, embedded in the program (cmake/embed.cmake makes the table out of
// src/serve/http/page/).
#ifndef TALON_SERVE_HTTP_PAGE_FILES_H_
#define TALON_SERVE_HTTP_PAGE_FILES_H_

#include <span>
#include <string_view>

namespace talon {

// All views live as long as the program.
struct PageFile {
  std::string_view path;          // as a browser asks for it: "/" for index.html, "/app.js"
  std::string_view content_type;  // with its charset
  std::string_view content;
};

// Each path once. Safe from any thread.
std::span<const PageFile> PageFiles();

}  // namespace talon

#endif  // TALON_SERVE_HTTP_PAGE_FILES_H_
