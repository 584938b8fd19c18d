#include "text/jinja/value.h"

#include <algorithm>

#include "text/unicode.h"

namespace talon::jinja {
namespace {

constexpr size_t kIndexedFrom = 12;  // entries; fewer are found faster by looking at each

List ListOf(std::vector<Value> items) {
  List list{.items = std::move(items), .extent = {.depth = 1}};
  for (const Value& item : list.items) list.extent.Contain(ExtentOf(item));
  return list;
}

}  // namespace

void Extent::Contain(const Extent& part) {
  depth = std::max(depth, part.depth + 1);
  bytes = std::min(bytes + part.bytes, 2 * kMaxValueBytes);  // no overflow
}

Dict::Dict(std::vector<Entry> entries) : extent_{.depth = 1} {
  entries_.reserve(entries.size());  // index_ refers to the keys, which must not move
  std::unordered_map<std::string, size_t> seen;
  for (Entry& entry : entries) {
    extent_.Contain(ExtentOf(entry.second));
    extent_.bytes += entry.first.size();
    const auto [place, is_new] = seen.emplace(entry.first, entries_.size());
    if (is_new) {
      entries_.push_back(std::move(entry));
    } else {
      entries_[place->second].second = std::move(entry.second);
    }
  }
  if (entries_.size() < kIndexedFrom) return;
  for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].first, i);
}

Dict::~Dict() = default;

const Value* Dict::Find(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &entries_[found->second].second;
  }
  for (const Entry& entry : entries_) {
    if (entry.first == key) return &entry.second;
  }
  return nullptr;
}

Value Value::MakeUndefined(std::string_view hint, std::string name) {
  return Value(Undefined{hint, std::make_shared<const std::string>(std::move(name))});
}

Value Value::String(std::string value) {
  return Value(std::make_shared<const std::string>(std::move(value)));
}

Value Value::MakeList(std::vector<Value> items) {
  return Value(std::make_shared<const List>(ListOf(std::move(items))));
}

Value Value::MakeTuple(std::vector<Value> items) {
  return Value(Tuple{std::make_shared<const List>(ListOf(std::move(items)))});
}

Value Value::MakeDict(std::vector<Dict::Entry> entries) {
  return Value(std::make_shared<const Dict>(std::move(entries)));
}

const std::vector<Value>& Value::items() const {
  if (is_tuple()) return std::get<Tuple>(variant_).list->items;
  return std::get<ListPtr>(variant_)->items;
}

int64_t Value::AsInt() const {
  return is_bool() ? (std::get<bool>(variant_) ? 1 : 0) : std::get<int64_t>(variant_);
}

double Value::AsDouble() const {
  return is_float() ? std::get<double>(variant_) : static_cast<double>(AsInt());
}

const char* Value::TypeName() const {
  static constexpr const char* kNames[] = {"undefined", "None",     "bool",  "int",  "float",
                                           "str",       "list",     "tuple", "dict", "namespace",
                                           "macro",     "function", "method"};
  static_assert(std::size(kNames) == std::variant_size_v<Variant>);
  return kNames[variant_.index()];
}

bool IsCallable(const Value& value) {
  const Value::Variant& variant = value.variant();
  return std::holds_alternative<MacroValue>(variant) ||
         std::holds_alternative<const Builtin*>(variant) ||
         std::holds_alternative<BoundMethod>(variant);
}

std::string UndefinedMessage(const Value& value) {
  const auto& undefined = std::get<Undefined>(value.variant());
  if (undefined.name == nullptr) return "a value is undefined";
  return fmt::format("{} '{}' is undefined", undefined.hint, *undefined.name);
}

Extent ExtentOf(const Value& value) {
  if (value.is_string()) return {.depth = 0, .bytes = 8 + value.str().size()};
  if (value.is_list()) return std::get<Value::ListPtr>(value.variant())->extent;
  if (value.is_tuple()) return std::get<Tuple>(value.variant()).list->extent;
  if (value.is_dict()) return value.dict().extent();
  Extent extent;
  if (const auto* bound = std::get_if<BoundMethod>(&value.variant())) {
    extent.Contain(ExtentOf(*bound->self));
  }
  return extent;
}

bool Truthy(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_bool() || value.is_int()) return value.AsInt() != 0;
  if (value.is_float()) return value.AsDouble() != 0;
  if (value.is_string()) return !value.str().empty();
  if (value.is_sequence()) return !value.items().empty();
  if (value.is_dict()) return !value.dict().entries().empty();
  return true;
}

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return a.AsDouble() == b.AsDouble();
    return a.AsInt() == b.AsInt();
  }
  if (a.variant().index() != b.variant().index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (a.is_string()) return a.str() == b.str();
  if (a.is_sequence()) {
    return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                      Equal);
  }
  if (a.is_dict()) {
    const auto& entries = a.dict().entries();
    if (entries.size() != b.dict().entries().size()) return false;
    return std::all_of(entries.begin(), entries.end(), [&](const Dict::Entry& entry) {
      const Value* other = b.dict().Find(entry.first);
      return other != nullptr && Equal(entry.second, *other);
    });
  }
  if (const auto* space = std::get_if<Namespace*>(&a.variant())) {
    return *space == std::get<Namespace*>(b.variant());
  }
  return false;
}

Result<int> Compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) {
      return a.AsDouble() < b.AsDouble() ? -1 : a.AsDouble() > b.AsDouble() ? 1 : 0;
    }
    return a.AsInt() < b.AsInt() ? -1 : a.AsInt() > b.AsInt() ? 1 : 0;
  }
  if (a.is_string() && b.is_string()) {  // UTF-8 orders as its code points do
    const int order = a.str().compare(b.str());
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    for (size_t i = 0; i < a.items().size() && i < b.items().size(); ++i) {
      if (!Equal(a.items()[i], b.items()[i])) return Compare(a.items()[i], b.items()[i]);
    }
    return a.items().size() < b.items().size() ? -1 : a.items().size() > b.items().size() ? 1 : 0;
  }
  for (const Value* side : {&a, &b}) {
    if (side->is_undefined()) return InvalidArgument("{}", UndefinedMessage(*side));
  }
  return InvalidArgument("{} and {} have no order", a.TypeName(), b.TypeName());
}

Result<std::vector<Value>> Iterate(const Value& value) {
  if (value.is_sequence()) return value.items();
  std::vector<Value> items;
  if (value.is_dict()) {
    for (const auto& [key, unused] : value.dict().entries()) items.push_back(Value::String(key));
  } else if (value.is_string()) {
    const std::string_view text = value.str();
    for (size_t offset = 0; offset < text.size();) {
      const size_t start = offset;
      NextCodePoint(text, &offset);
      items.push_back(Value::String(std::string(text.substr(start, offset - start))));
    }
  } else if (!value.is_undefined()) {
    return InvalidArgument("{} cannot be iterated over", value.TypeName());
  }
  return items;
}

int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

}  // namespace talon::jinja
