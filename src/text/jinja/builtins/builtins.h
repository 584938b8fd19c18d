// The filters, tests, methods and global functions of templates: one sorted table each. A name that
// is not in its table is an error when a template is parsed.
#ifndef TALON_TEXT_JINJA_BUILTINS_BUILTINS_H_
#define TALON_TEXT_JINJA_BUILTINS_BUILTINS_H_

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace talon::jinja {

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// `self` is what a filter, test or method works on; undefined for a global function. Unless the
// builtin is variadic, `args` has one value for each parameter, undefined if it was not given.
using BuiltinFunction = Result<Value> (*)(Runtime& runtime, const Value& self,
                                          const CallArguments& args);

// How much of `self` a builtin looks at.
enum class Cost {
  kConstant,
  kShallow,  // the text of a string, the items of a container
  kDeep,     // all there is
};

struct Builtin {
  std::string_view name;
  BuiltinFunction call;
  std::vector<std::string_view> parameters = {};
  size_t required = 0;  // the first so many parameters must be given
  Cost cost = Cost::kShallow;
  bool variadic = false;  // takes any arguments as they are
};

// Null if there is none of that name.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindGlobal(std::string_view name);
// A method of any type.
bool IsMethodName(std::string_view name);
// A method of this value's type.
const Builtin* FindMethod(const Value& self, std::string_view name);

// The tables, each in a file of its own, sorted by name.
std::span<const Builtin> TextFilters();
std::span<const Builtin> SequenceFilters();
std::span<const Builtin> Tests();
std::span<const Builtin> StringMethods();
std::span<const Builtin> DictMethods();
std::span<const Builtin> SequenceMethods();
std::span<const Builtin> Globals();

// Whether so many positional and these named arguments fit. `kind` is "filter", "test", ...
Status CheckArguments(const Builtin& builtin, std::string_view kind, size_t positional,
                      const std::vector<std::string_view>& named);
// Checks, binds, charges and calls.
Result<Value> CallBuiltin(Runtime& runtime, const Builtin& builtin, const Value& self,
                          CallArguments args);

// An int argument, `fallback` if it was not given.
Result<int64_t> IntArgument(const Value& value, int64_t fallback, std::string_view what);
// A string argument. REQUIRES: it lives as long as `value`.
Result<std::string_view> StringArgument(const Value& value, std::string_view what);

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_BUILTINS_BUILTINS_H_
