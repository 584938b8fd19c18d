// Global functions.
#include <ctime>

#include "text/jinja/builtins/builtins.h"
#include "text/jinja/text.h"
#include "text/unicode.h"

namespace talon::jinja {
namespace {

constexpr int64_t kMaxRange = 100000;  // the same as Jinja's sandbox

Result<Value> MakeDictFromCall(Runtime& runtime, const Value&, const CallArguments& args) {
  if (args.positional.size() > 1) return InvalidArgument("dict takes at most 1 argument");
  std::vector<Dict::Entry> entries;
  if (!args.positional.empty()) {
    if (!args.positional[0].is_dict()) return InvalidArgument("dict copies only a dict");
    entries = args.positional[0].dict().entries();
    TALON_RETURN_IF_ERROR(runtime.Charge(entries.size() * sizeof(Dict::Entry)));
  }
  entries.insert(entries.end(), args.named.begin(), args.named.end());
  return Value::MakeDict(std::move(entries));
}

Result<Value> MakeNamespace(Runtime& runtime, const Value&, const CallArguments& args) {
  std::map<std::string, Value> attributes;
  if (args.positional.size() > 1) return InvalidArgument("namespace takes at most 1 argument");
  if (!args.positional.empty()) {
    if (!args.positional[0].is_dict()) return InvalidArgument("namespace copies only a dict");
    for (const auto& [name, value] : args.positional[0].dict().entries()) attributes[name] = value;
  }
  for (const auto& [name, value] : args.named) attributes[name] = value;
  TALON_RETURN_IF_ERROR(runtime.Charge(attributes.size() * sizeof(Dict::Entry)));
  return runtime.MakeNamespace(std::move(attributes));
}

Result<Value> RaiseException(Runtime& runtime, const Value&, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(const std::string message, ToText(args.positional[0]));
  return runtime.Raise(message);
}

Result<Value> Range(Runtime& runtime, const Value&, const CallArguments& args) {
  const bool one = args.positional[1].is_undefined();
  TALON_ASSIGN_OR_RETURN(const int64_t first, IntArgument(args.positional[0], 0, "range"));
  TALON_ASSIGN_OR_RETURN(const int64_t second, IntArgument(args.positional[1], 0, "range"));
  TALON_ASSIGN_OR_RETURN(const int64_t step, IntArgument(args.positional[2], 1, "range"));
  if (step == 0) return InvalidArgument("range: the step is 0");
  const int64_t start = one ? 0 : first;
  const int64_t stop = one ? first : second;
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      return InvalidArgument("range: more than {} numbers", kMaxRange);
    }
    items.push_back(Value::Int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  TALON_RETURN_IF_ERROR(runtime.Charge(items.size() * sizeof(Value)));
  return Value::MakeList(std::move(items));
}

// The local time in strftime's format.
Result<Value> StrftimeNow(Runtime&, const Value&, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(const std::string_view format,
                         StringArgument(args.positional[0], "strftime_now: the format"));
  if (format.empty()) return Value::String("");
  if (format.size() > 256) return InvalidArgument("strftime_now: the format is too long");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  if (localtime_r(&now, &local) == nullptr) return Internal("strftime_now: no local time");
  char buffer[4096];
  const size_t size = std::strftime(buffer, sizeof(buffer), std::string(format).c_str(), &local);
  const std::string text(buffer, size);
  if (FindInvalidUtf8(text)) return InvalidArgument("strftime_now: the result is not UTF-8");
  return Value::String(text);
}

}  // namespace

std::span<const Builtin> Globals() {
  static const std::vector<Builtin> kTable = {
      {.name = "dict", .call = MakeDictFromCall, .variadic = true},
      {.name = "namespace", .call = MakeNamespace, .variadic = true},
      {.name = "raise_exception", .call = RaiseException, .parameters = {"message"}, .required = 1},
      {.name = "range", .call = Range, .parameters = {"start", "stop", "step"}, .required = 1},
      {.name = "strftime_now", .call = StrftimeNow, .parameters = {"format"}, .required = 1},
  };
  return kTable;
}

}  // namespace talon::jinja
