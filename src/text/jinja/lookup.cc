// Attributes, items and slices.
#include <algorithm>

#include "text/jinja/builtins/builtins.h"
#include "text/jinja/operators.h"
#include "text/unicode.h"

namespace talon::jinja {
namespace {

Value Bind(const Value& self, const Builtin* method) {
  return Value(BoundMethod{std::make_shared<const Value>(self), method});
}

// The byte offset of character `index`, counted from 0. REQUIRES: there are so many.
size_t OffsetOf(std::string_view text, int64_t index) {
  size_t offset = 0;
  while (index-- > 0) NextCodePoint(text, &offset);
  return offset;
}

Value Character(std::string_view text, size_t offset) {
  const size_t start = offset;
  NextCodePoint(text, &offset);
  return Value::String(std::string(text.substr(start, offset - start)));
}

Result<Value> ItemAt(Runtime& runtime, const Value& object, int64_t index) {
  TALON_RETURN_IF_ERROR(runtime.Charge(object.is_string() ? object.str().size() : 0));
  const int64_t size = object.is_string() ? CountCharacters(object.str())
                                          : static_cast<int64_t>(object.items().size());
  const std::string name = std::to_string(index);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return Value::MakeUndefined("item", name);
  if (object.is_string()) return Character(object.str(), OffsetOf(object.str(), index));
  return object.items()[index];
}

// Python's rules for one bound of a slice.
int64_t Clamp(std::optional<int64_t> bound, int64_t absent, int64_t size, int64_t step) {
  if (!bound) return absent;
  const int64_t lowest = step < 0 ? -1 : 0;
  const int64_t highest = step < 0 ? size - 1 : size;
  const int64_t value = *bound < 0 ? std::max(*bound, -size - 1) + size : *bound;
  return std::clamp(value, lowest, highest);
}

// The text of single characters, in slice order.
std::string SliceText(const std::string& text, int64_t start, int64_t stop, int64_t step) {
  if (step == 1) {
    if (start >= stop) return "";
    const size_t first = OffsetOf(text, start);
    return text.substr(first, OffsetOf(std::string_view(text).substr(first), stop - start));
  }
  std::vector<size_t> offsets;
  for (size_t offset = 0; offset < text.size(); NextCodePoint(text, &offset)) {
    offsets.push_back(offset);
  }
  std::string out;
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    size_t end = offsets[i];
    NextCodePoint(text, &end);
    out.append(text, offsets[i], end - offsets[i]);
  }
  return out;
}

}  // namespace

Result<Value> GetAttribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) return InvalidArgument("{}", UndefinedMessage(object));
  if (const auto* space = std::get_if<Namespace*>(&object.variant())) {
    const auto found = (*space)->attributes.find(name);
    if (found != (*space)->attributes.end()) return found->second;
    return Value::MakeUndefined("attribute", name);
  }
  if (const Builtin* method = FindMethod(object, name)) return Bind(object, method);
  if (object.is_dict()) {
    if (const Value* found = object.dict().Find(name)) return *found;
  }
  return Value::MakeUndefined("attribute", name);
}

Result<Value> GetItem(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) return InvalidArgument("{}", UndefinedMessage(object));
  if (key.is_string()) {
    if (object.is_dict()) {
      if (const Value* found = object.dict().Find(key.str())) return *found;
    }
    return GetAttribute(object, key.str());
  }
  const bool is_index = key.is_int() || key.is_bool();
  if (is_index && (object.is_sequence() || object.is_string())) {
    return ItemAt(runtime, object, key.AsInt());
  }
  return Value::MakeUndefined("item", key.is_int() ? std::to_string(key.AsInt()) : key.TypeName());
}

Result<Value> GetSlice(Runtime& runtime, const Value& object, const SliceBounds& bounds) {
  if (object.is_undefined()) return InvalidArgument("{}", UndefinedMessage(object));
  if (!object.is_string() && !object.is_sequence()) {
    return Value::MakeUndefined("item", "slice");
  }
  if (bounds.step == 0) return InvalidArgument("a slice's step is 0");
  const int64_t size = object.is_string() ? CountCharacters(object.str())
                                          : static_cast<int64_t>(object.items().size());
  const int64_t step = std::clamp(bounds.step, -size - 1, size + 1);  // no overflow below
  const int64_t start = Clamp(bounds.start, step < 0 ? size - 1 : 0, size, step);
  const int64_t stop = Clamp(bounds.stop, step < 0 ? -1 : size, size, step);
  const size_t unit = object.is_string() ? (step == 1 ? 1 : sizeof(size_t)) : sizeof(Value);
  TALON_RETURN_IF_ERROR(runtime.Charge(static_cast<size_t>(size) * unit));
  if (object.is_string()) return Value::String(SliceText(object.str(), start, stop, step));
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    items.push_back(object.items()[i]);
  }
  return object.is_list() ? Value::MakeList(std::move(items)) : Value::MakeTuple(std::move(items));
}

}  // namespace talon::jinja
