// The values of a template: Python's None, bool, int, float, str, list, tuple and dict, plus what
// Jinja adds (undefined, namespaces, callables). Containers never change once made, so copies share
// them; only a namespace changes, and it belongs to the render.
#ifndef TALON_TEXT_JINJA_VALUE_H_
#define TALON_TEXT_JINJA_VALUE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace talon::jinja {

class Value;
struct Builtin;
struct Macro;
class Scope;

// How far a value reaches when it is written out. Values share their parts, so a few lines of
// template could make one with 2^100 leaves; a render refuses values beyond these limits, so every
// walk over one ends soon and fits the stack.
struct Extent {
  int depth = 0;     // levels of containers
  size_t bytes = 8;  // text, plus 8 for every value

  void Contain(const Extent& part);
};
inline constexpr int kMaxValueDepth = 256;
inline constexpr size_t kMaxValueBytes = size_t{1} << 28;

struct Undefined {
  std::string_view hint;  // "variable", "attribute" or "item"; a literal
  std::shared_ptr<const std::string> name;
};
struct None {};

struct List {
  std::vector<Value> items;
  Extent extent;
};

// In insertion order. Keys are strings.
class Dict {
 public:
  using Entry = std::pair<std::string, Value>;

  explicit Dict(std::vector<Entry> entries);  // if keys are equal, the last one counts
  ~Dict();
  const std::vector<Entry>& entries() const { return entries_; }
  const Value* Find(std::string_view key) const;
  const Extent& extent() const { return extent_; }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, size_t>
      index_;  // places in entries_; empty when there are few
  Extent extent_;
};

struct Namespace {
  std::map<std::string, Value> attributes;
};

// A macro and the scope it was defined in, both owned by the template or its render.
struct MacroValue {
  const Macro* macro;
  Scope* scope;
};
struct BoundMethod {
  std::shared_ptr<const Value> self;
  const Builtin* method;
};
struct Tuple {
  std::shared_ptr<const List> list;
};

class Value {
 public:
  using StringPtr = std::shared_ptr<const std::string>;
  using ListPtr = std::shared_ptr<const List>;
  using DictPtr = std::shared_ptr<const Dict>;
  using Variant = std::variant<Undefined, None, bool, int64_t, double, StringPtr, ListPtr, Tuple,
                               DictPtr, Namespace*, MacroValue, const Builtin*, BoundMethod>;

  Value() = default;  // undefined
  explicit Value(Variant variant) : variant_(std::move(variant)) {}
  static Value MakeUndefined(std::string_view hint, std::string name);
  static Value MakeNone() { return Value(None{}); }
  static Value Bool(bool value) { return Value(value); }
  static Value Int(int64_t value) { return Value(value); }
  static Value Float(double value) { return Value(value); }
  static Value String(std::string value);
  static Value MakeList(std::vector<Value> items);
  static Value MakeTuple(std::vector<Value> items);
  static Value MakeDict(std::vector<Dict::Entry> entries);

  bool is_undefined() const { return Is<Undefined>(); }
  bool is_none() const { return Is<None>(); }
  bool is_bool() const { return Is<bool>(); }
  bool is_int() const { return Is<int64_t>(); }
  bool is_float() const { return Is<double>(); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return Is<StringPtr>(); }
  bool is_list() const { return Is<ListPtr>(); }
  bool is_tuple() const { return Is<Tuple>(); }
  bool is_sequence() const { return is_list() || is_tuple(); }
  bool is_dict() const { return Is<DictPtr>(); }

  // REQUIRES: the value is of that kind.
  const std::string& str() const { return *std::get<StringPtr>(variant_); }
  const std::vector<Value>& items() const;  // REQUIRES: a list or tuple
  const Dict& dict() const { return *std::get<DictPtr>(variant_); }
  int64_t AsInt() const;    // REQUIRES: an int or bool
  double AsDouble() const;  // REQUIRES: a number
  const Variant& variant() const { return variant_; }

  // Python's name of the type, for messages.
  const char* TypeName() const;

 private:
  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(variant_);
  }

  Variant variant_;
};

bool IsCallable(const Value& value);
// "variable 'x' is undefined". REQUIRES: value.is_undefined()
std::string UndefinedMessage(const Value& value);
Extent ExtentOf(const Value& value);
// What Python's bool() says of the value.
bool Truthy(const Value& value);
// `==` as Python has it: 1 == 1.0 == true; lists and tuples are never equal to each other.
bool Equal(const Value& a, const Value& b);
// Negative, 0 or positive. Fails where Python raises TypeError.
Result<int> Compare(const Value& a, const Value& b);
// What `for` walks over: the items, a dict's keys, a string's characters, nothing if undefined.
Result<std::vector<Value>> Iterate(const Value& value);
// The number of characters (code points).
int64_t CountCharacters(std::string_view text);

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_VALUE_H_
