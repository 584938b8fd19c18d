// What one render may use, and what it owns.
#ifndef TALON_TEXT_JINJA_RUNTIME_H_
#define TALON_TEXT_JINJA_RUNTIME_H_

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/value.h"

namespace talon::jinja {

// Work is counted in bytes read or made; each step of the interpreter counts kStepWork. The limit
// is about a second, and far beyond what a real template needs for the longest request.
inline constexpr size_t kMaxWork = size_t{1} << 29;
inline constexpr size_t kStepWork = 128;
inline constexpr size_t kMaxOutputBytes = size_t{1} << 26;

// Not thread-safe; lives for one render and outlives its values.
class Runtime {
 public:
  // Fails with ResourceExhausted once the render's work is spent. Call it before the work.
  Status Charge(size_t bytes);
  Result<std::vector<Value>> Iterate(const Value& value);
  // Owned here, not by the value, because a namespace may contain itself.
  Value MakeNamespace(std::map<std::string, Value> attributes);

  // raise_exception('...'): its message is for the caller of the render, without a line number.
  Status Raise(const std::string& message);
  bool raised() const { return raised_; }

 private:
  size_t work_left_ = kMaxWork;
  bool raised_ = false;
  std::deque<Namespace> namespaces_;
};

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_RUNTIME_H_
