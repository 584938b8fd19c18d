// The tools that an answer may call, and how the answer is kept to them.
#ifndef TALON_SERVE_HTTP_API_TOOL_REQUEST_H_
#define TALON_SERVE_HTTP_API_TOOL_REQUEST_H_

#include <string>
#include <vector>

namespace talon {

struct ApiTool {
  std::string name;
  std::string place;    // in the request: "tools[0].function"
  std::string schema;   // schema of its arguments, which are an object
  bool strict = false;  // a schema that cannot be enforced is refused
};

struct ToolRequest {
  static constexpr int kMaxTools = 128;

  std::vector<ApiTool> tools;  // tools that may be called; none: an answer without calls
  bool required = false;       // the answer is calls
  bool parallel = true;        // there may be several

  bool active() const { return !tools.empty(); }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const ApiTool& tool : tools) names.push_back(tool.name);
    return names;
  }
};

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_TOOL_REQUEST_H_
