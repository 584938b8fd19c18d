// Filters over lists and dicts, and `default`.
#include <algorithm>

#include "text/jinja/builtins/builtins.h"
#include "text/jinja/characters.h"
#include "text/jinja/operators.h"
#include "text/jinja/text.h"

namespace talon::jinja {
namespace {

// a.b.0 from `item`, as map(attribute=...) and its kin take it.
Result<Value> AttributePath(Runtime& runtime, const Value& item, std::string_view path) {
  Value value = item;
  while (true) {
    const size_t dot = path.find('.');
    const std::string part(path.substr(0, dot));
    const bool is_index =
        !part.empty() && part.size() < 10 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    const Value key = is_index ? Value::Int(std::stol(part)) : Value::String(part);
    TALON_ASSIGN_OR_RETURN(value, GetItem(runtime, value, key));
    if (dot == std::string_view::npos) return value;
    path.remove_prefix(dot + 1);
  }
}

Result<Value> AttributeOf(Runtime& runtime, const Value& item, const Value& attribute) {
  if (attribute.is_string()) return AttributePath(runtime, item, attribute.str());
  return GetItem(runtime, item, attribute);
}

// map, select and their kin take none and false as empty lists.
Result<std::vector<Value>> IterateTruthy(Runtime& runtime, const Value& value) {
  if (!Truthy(value)) return std::vector<Value>();
  return runtime.Iterate(value);
}

Result<Value> Default(Runtime&, const Value& self, const CallArguments& args) {
  const bool replaces = self.is_undefined() || (Truthy(args.positional[1]) && !Truthy(self));
  if (!replaces) return self;
  return args.positional[0].is_undefined() ? Value::String("") : args.positional[0];
}

Value Caseless(const Value& value) {
  return value.is_string() ? Value::String(Lower(value.str())) : value;
}

// Sorts by `keys`, stable. Fails where two keys have no order.
Result<std::vector<Value>> SortBy(std::vector<Value> items, const std::vector<Value>& keys,
                                  bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  Status failure;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto compared = reverse ? Compare(keys[b], keys[a]) : Compare(keys[a], keys[b]);
    if (!compared.ok()) failure = compared.status();
    return compared.ok() && *compared < 0;
  });
  TALON_RETURN_IF_ERROR(failure);
  std::vector<Value> sorted;
  for (const size_t i : order) sorted.push_back(std::move(items[i]));
  return sorted;
}

Result<Value> DictSort(Runtime& runtime, const Value& self, const CallArguments& args) {
  if (!self.is_dict()) return InvalidArgument("dictsort: {} is not a dict", self.TypeName());
  const std::string by = args.positional[1].is_string() ? args.positional[1].str() : "key";
  if (by != "key" && by != "value") return InvalidArgument("dictsort: by must be 'key' or 'value'");
  const bool case_sensitive = Truthy(args.positional[0]);
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [key, value] : self.dict().entries()) {
    items.push_back(Value::MakeTuple({Value::String(key), value}));
    const Value sort_key = by == "key" ? Value::String(key) : value;
    keys.push_back(case_sensitive ? sort_key : Caseless(sort_key));
  }
  TALON_ASSIGN_OR_RETURN(items, SortBy(std::move(items), keys, Truthy(args.positional[2])));
  return Value::MakeList(std::move(items));
}

Result<Value> First(Runtime& runtime, const Value& self, const CallArguments&) {
  if (self.is_sequence() || self.is_string()) return GetItem(runtime, self, Value::Int(0));
  TALON_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.Iterate(self));
  return items.empty() ? Value::MakeUndefined("item", "first") : items.front();
}

Result<Value> Last(Runtime& runtime, const Value& self, const CallArguments&) {
  if (self.is_sequence() || self.is_string()) return GetItem(runtime, self, Value::Int(-1));
  TALON_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.Iterate(self));
  return items.empty() ? Value::MakeUndefined("item", "last") : items.back();
}

Result<Value> Items(Runtime&, const Value& self, const CallArguments&) {
  std::vector<Value> items;
  if (self.is_undefined()) return Value::MakeList({});
  if (!self.is_dict()) return InvalidArgument("items: {} is not a dict", self.TypeName());
  for (const auto& [key, value] : self.dict().entries()) {
    items.push_back(Value::MakeTuple({Value::String(key), value}));
  }
  return Value::MakeList(std::move(items));
}

Result<Value> Join(Runtime& runtime, const Value& self, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(const std::string separator, ToText(args.positional[0]));
  TALON_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.Iterate(self));
  TALON_RETURN_IF_ERROR(runtime.Charge(ExtentOf(self).bytes + items.size() * separator.size()));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (!args.positional[1].is_undefined()) {
      TALON_ASSIGN_OR_RETURN(item, AttributeOf(runtime, item, args.positional[1]));
    }
    TALON_ASSIGN_OR_RETURN(const std::string text, ToText(item));
    if (i > 0) out += separator;
    out += text;
  }
  return Value::String(std::move(out));
}

Result<Value> Length(Runtime& runtime, const Value& self, const CallArguments&) {
  if (self.is_string()) {
    TALON_RETURN_IF_ERROR(runtime.Charge(self.str().size()));
    return Value::Int(CountCharacters(self.str()));
  }
  if (self.is_sequence()) return Value::Int(static_cast<int64_t>(self.items().size()));
  if (self.is_dict()) return Value::Int(static_cast<int64_t>(self.dict().entries().size()));
  if (self.is_undefined()) return Value::Int(0);
  return InvalidArgument("length: {} has none", self.TypeName());
}

Result<Value> ToList(Runtime& runtime, const Value& self, const CallArguments&) {
  TALON_ASSIGN_OR_RETURN(std::vector<Value> items, runtime.Iterate(self));
  return Value::MakeList(std::move(items));
}

// map(attribute='name', default=value)
Result<Value> MapAttribute(Runtime& runtime, std::vector<Value> items, const CallArguments& args) {
  Value attribute;
  Value fallback;
  for (const auto& [name, value] : args.named) {
    if (name == "attribute") {
      attribute = value;
    } else if (name == "default") {
      fallback = value;
    } else {
      return InvalidArgument("map does not take the argument '{}'", name);
    }
  }
  if (attribute.is_undefined()) return InvalidArgument("map needs a filter or an attribute");
  for (Value& item : items) {
    TALON_ASSIGN_OR_RETURN(item, AttributeOf(runtime, item, attribute));
    if (item.is_undefined()) item = fallback;
  }
  return Value::MakeList(std::move(items));
}

// map('filter', arguments...), or the above.
Result<Value> Map(Runtime& runtime, const Value& self, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(std::vector<Value> items, IterateTruthy(runtime, self));
  if (args.positional.empty()) return MapAttribute(runtime, std::move(items), args);
  TALON_ASSIGN_OR_RETURN(const std::string_view name, StringArgument(args.positional[0], "map"));
  const Builtin* filter = FindFilter(name);
  if (filter == nullptr) return InvalidArgument("unknown filter '{}'", name);
  CallArguments rest{{args.positional.begin() + 1, args.positional.end()}, args.named};
  for (Value& item : items) {
    TALON_ASSIGN_OR_RETURN(item, CallBuiltin(runtime, *filter, item, rest));
  }
  return Value::MakeList(std::move(items));
}

template <bool greatest>
Result<Value> Extreme(Runtime& runtime, const Value& self, const CallArguments&) {
  TALON_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.Iterate(self));
  if (items.empty()) return Value::MakeUndefined("item", greatest ? "max" : "min");
  Value best = items[0];
  for (const Value& item : items) {
    TALON_ASSIGN_OR_RETURN(const int order, Compare(Caseless(item), Caseless(best)));
    if (greatest ? order > 0 : order < 0) best = item;
  }
  return best;
}

Result<Value> Reverse(Runtime& runtime, const Value& self, const CallArguments&) {
  if (self.is_string()) return GetSlice(runtime, self, {.step = -1});
  TALON_ASSIGN_OR_RETURN(std::vector<Value> items, runtime.Iterate(self));
  std::reverse(items.begin(), items.end());
  return Value::MakeList(std::move(items));
}

// select, reject: (test, arguments...); selectattr, rejectattr: (attribute, test, arguments...).
// Without a test, truth decides.
template <bool keeps, bool by_attribute>
Result<Value> Select(Runtime& runtime, const Value& self, const CallArguments& args) {
  const size_t test_place = by_attribute ? 1 : 0;
  if (args.positional.size() < test_place) return InvalidArgument("selectattr needs an attribute");
  const Builtin* test = nullptr;
  CallArguments rest{{}, args.named};
  if (args.positional.size() > test_place) {
    TALON_ASSIGN_OR_RETURN(const std::string_view name,
                           StringArgument(args.positional[test_place], "the name of a test"));
    test = FindTest(name);
    if (test == nullptr) return InvalidArgument("unknown test '{}'", name);
    rest.positional.assign(args.positional.begin() + test_place + 1, args.positional.end());
  }
  TALON_ASSIGN_OR_RETURN(const std::vector<Value> items, IterateTruthy(runtime, self));
  std::vector<Value> kept;
  for (const Value& item : items) {
    Value subject = item;
    if constexpr (by_attribute) {
      TALON_ASSIGN_OR_RETURN(subject, AttributeOf(runtime, item, args.positional[0]));
    }
    if (test != nullptr) {
      TALON_ASSIGN_OR_RETURN(subject, CallBuiltin(runtime, *test, subject, rest));
    }
    if (Truthy(subject) == keeps) kept.push_back(item);
  }
  return Value::MakeList(std::move(kept));
}

// sort(reverse=false, case_sensitive=false, attribute=none)
Result<Value> Sort(Runtime& runtime, const Value& self, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(std::vector<Value> items, runtime.Iterate(self));
  const Value& attribute = args.positional[2];
  std::vector<Value> keys;
  for (const Value& item : items) {
    Value key = item;
    if (!attribute.is_undefined() && !attribute.is_none()) {
      TALON_ASSIGN_OR_RETURN(key, AttributeOf(runtime, item, attribute));
    }
    keys.push_back(Truthy(args.positional[1]) ? key : Caseless(key));
  }
  TALON_ASSIGN_OR_RETURN(items, SortBy(std::move(items), keys, Truthy(args.positional[0])));
  return Value::MakeList(std::move(items));
}

Result<Value> Sum(Runtime& runtime, const Value& self, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.Iterate(self));
  Value total = args.positional[1].is_undefined() ? Value::Int(0) : args.positional[1];
  for (const Value& item : items) {
    Value term = item;
    if (!args.positional[0].is_undefined() && !args.positional[0].is_none()) {
      TALON_ASSIGN_OR_RETURN(term, AttributeOf(runtime, item, args.positional[0]));
    }
    TALON_ASSIGN_OR_RETURN(total, ApplyBinary(runtime, BinaryOp::kAdd, total, term));
  }
  return total;
}

Result<Value> Unique(Runtime& runtime, const Value& self, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.Iterate(self));
  std::vector<Value> kept;
  std::vector<Value> seen;
  for (const Value& item : items) {
    Value key = item;
    if (!args.positional[1].is_undefined() && !args.positional[1].is_none()) {
      TALON_ASSIGN_OR_RETURN(key, AttributeOf(runtime, item, args.positional[1]));
    }
    if (!Truthy(args.positional[0])) key = Caseless(key);
    TALON_RETURN_IF_ERROR(runtime.Charge(seen.size() * sizeof(Value)));
    if (std::any_of(seen.begin(), seen.end(),
                    [&](const Value& other) { return Equal(key, other); })) {
      continue;
    }
    seen.push_back(key);
    kept.push_back(item);
  }
  return Value::MakeList(std::move(kept));
}

}  // namespace

std::span<const Builtin> SequenceFilters() {
  static const std::vector<Builtin> kTable = {
      {.name = "count", .call = Length, .cost = Cost::kConstant},
      {.name = "d",
       .call = Default,
       .parameters = {"default_value", "boolean"},
       .cost = Cost::kConstant},
      {.name = "default",
       .call = Default,
       .parameters = {"default_value", "boolean"},
       .cost = Cost::kConstant},
      {.name = "dictsort",
       .call = DictSort,
       .parameters = {"case_sensitive", "by", "reverse"},
       .cost = Cost::kDeep},
      {.name = "first", .call = First, .cost = Cost::kConstant},
      {.name = "items", .call = Items},
      {.name = "join", .call = Join, .parameters = {"d", "attribute"}},
      {.name = "last", .call = Last, .cost = Cost::kConstant},
      {.name = "length", .call = Length, .cost = Cost::kConstant},
      {.name = "list", .call = ToList},
      {.name = "map", .call = Map, .variadic = true},
      {.name = "max", .call = Extreme<true>, .cost = Cost::kDeep},
      {.name = "min", .call = Extreme<false>, .cost = Cost::kDeep},
      {.name = "reject", .call = Select<false, false>, .variadic = true},
      {.name = "rejectattr", .call = Select<false, true>, .variadic = true},
      {.name = "reverse", .call = Reverse},
      {.name = "select", .call = Select<true, false>, .variadic = true},
      {.name = "selectattr", .call = Select<true, true>, .variadic = true},
      {.name = "sort",
       .call = Sort,
       .parameters = {"reverse", "case_sensitive", "attribute"},
       .cost = Cost::kDeep},
      {.name = "sum", .call = Sum, .parameters = {"attribute", "start"}},
      {.name = "unique",
       .call = Unique,
       .parameters = {"case_sensitive", "attribute"},
       .cost = Cost::kDeep},
  };
  return kTable;
}

}  // namespace talon::jinja
