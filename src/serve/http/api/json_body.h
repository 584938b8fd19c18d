// The JSON object that a client sent, without a tree of its values: each member is parsed when it
// is asked for. What is not read costs no memory, however many values it holds, and what is read
// has a limit, because a tree can take thirty times the bytes of its text.
#ifndef TALON_SERVE_HTTP_API_JSON_BODY_H_
#define TALON_SERVE_HTTP_API_JSON_BODY_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"

namespace talon {

// Used by one thread.
class JsonBody {
 public:
  static constexpr int kMaxNesting = 256;
  static constexpr size_t kMaxMembers = 256;

  // Checks the whole text, to which the result refers. An error says where it is not JSON.
  static Result<JsonBody> Parse(std::string_view text);
  ~JsonBody();
  JsonBody(JsonBody&& other) noexcept;
  JsonBody& operator=(JsonBody&& other) = delete;

  // Null: there is no such member. ResourceExhausted: its tree would be too large. The last one
  // counts where several have the same name.
  Result<const Json*> Find(std::string_view key);
  // The value, of which an empty list is left. REQUIRES: Find found it.
  Json Take(std::string_view key);
  // The value's own text. REQUIRES: Find found it.
  std::string_view Text(std::string_view key) const { return members_.find(key)->second.text; }
  std::vector<std::string_view> Keys() const;

 private:
  struct Tree;
  struct Member {
    std::string_view text;
    std::unique_ptr<Tree> tree;  // null: not parsed yet
  };

  JsonBody();
  Status Split(std::string_view text);

  std::map<std::string, Member, std::less<>> members_;
};

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_JSON_BODY_H_
