#include "text/jinja/builtins/builtins.h"

#include <algorithm>

namespace talon::jinja {
namespace {

const Builtin* FindIn(std::span<const Builtin> table, std::string_view name) {
  const auto found = std::lower_bound(
      table.begin(), table.end(), name,
      [](const Builtin& builtin, std::string_view wanted) { return builtin.name < wanted; });
  return found != table.end() && found->name == name ? &*found : nullptr;
}

// One value per parameter. REQUIRES: CheckArguments passed.
CallArguments Bind(const Builtin& builtin, CallArguments args) {
  args.positional.resize(builtin.parameters.size());
  for (auto& [name, value] : args.named) {
    const auto place = std::find(builtin.parameters.begin(), builtin.parameters.end(), name);
    args.positional[place - builtin.parameters.begin()] = std::move(value);
  }
  args.named.clear();
  return args;
}

size_t CostOf(const Value& self, Cost cost) {
  if (cost == Cost::kConstant) return 0;
  if (cost == Cost::kDeep) return ExtentOf(self).bytes;
  if (self.is_string()) return self.str().size();
  if (self.is_sequence()) return self.items().size() * sizeof(Value);
  if (self.is_dict()) return self.dict().entries().size() * sizeof(Dict::Entry);
  return 0;
}

}  // namespace

const Builtin* FindFilter(std::string_view name) {
  const Builtin* found = FindIn(TextFilters(), name);
  return found != nullptr ? found : FindIn(SequenceFilters(), name);
}

const Builtin* FindTest(std::string_view name) { return FindIn(Tests(), name); }
const Builtin* FindGlobal(std::string_view name) { return FindIn(Globals(), name); }

bool IsMethodName(std::string_view name) {
  return FindIn(StringMethods(), name) != nullptr || FindIn(DictMethods(), name) != nullptr ||
         FindIn(SequenceMethods(), name) != nullptr;
}

const Builtin* FindMethod(const Value& self, std::string_view name) {
  if (self.is_string()) return FindIn(StringMethods(), name);
  if (self.is_dict()) return FindIn(DictMethods(), name);
  if (self.is_sequence()) return FindIn(SequenceMethods(), name);
  return nullptr;
}

Status CheckArguments(const Builtin& builtin, std::string_view kind, size_t positional,
                      const std::vector<std::string_view>& named) {
  if (builtin.variadic) return OkStatus();
  const auto& parameters = builtin.parameters;
  if (positional > parameters.size()) {
    return InvalidArgument("{} '{}' takes at most {} arguments, {} given", kind, builtin.name,
                           parameters.size(), positional);
  }
  std::vector<bool> given(parameters.size());
  std::fill_n(given.begin(), positional, true);
  for (const std::string_view name : named) {
    const auto place = std::find(parameters.begin(), parameters.end(), name);
    const size_t index = place - parameters.begin();
    if (place == parameters.end() || given[index]) {
      return InvalidArgument("{} '{}' does not take the argument '{}'{}", kind, builtin.name, name,
                             place == parameters.end() ? "" : " twice");
    }
    given[index] = true;
  }
  for (size_t i = 0; i < builtin.required; ++i) {
    if (!given[i]) {
      return InvalidArgument("{} '{}' needs the argument '{}'", kind, builtin.name, parameters[i]);
    }
  }
  return OkStatus();
}

Result<Value> CallBuiltin(Runtime& runtime, const Builtin& builtin, const Value& self,
                          CallArguments args) {
  std::vector<std::string_view> named;
  for (const auto& [name, value] : args.named) named.push_back(name);
  TALON_RETURN_IF_ERROR(CheckArguments(builtin, "function", args.positional.size(), named));
  if (!builtin.variadic) args = Bind(builtin, std::move(args));
  TALON_RETURN_IF_ERROR(runtime.Charge(CostOf(self, builtin.cost)));
  return builtin.call(runtime, self, args);
}

Result<int64_t> IntArgument(const Value& value, int64_t fallback, std::string_view what) {
  if (value.is_undefined()) return fallback;
  if (value.is_int() || value.is_bool()) return value.AsInt();
  return InvalidArgument("{} must be an int, not {}", what, value.TypeName());
}

Result<std::string_view> StringArgument(const Value& value, std::string_view what) {
  if (value.is_string()) return std::string_view(value.str());
  if (value.is_undefined()) return InvalidArgument("{}: {}", what, UndefinedMessage(value));
  return InvalidArgument("{} must be a str, not {}", what, value.TypeName());
}

}  // namespace talon::jinja
