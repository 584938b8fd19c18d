#include "text/jinja/runtime.h"

namespace talon::jinja {

Status Runtime::Charge(size_t bytes) {
  if (bytes > work_left_) {
    work_left_ = 0;
    return ResourceExhausted("the template takes too much work (limit {} units)", kMaxWork);
  }
  work_left_ -= bytes;
  return OkStatus();
}

Result<std::vector<Value>> Runtime::Iterate(const Value& value) {
  constexpr size_t kBytesPerCharacter = 96;  // a string's characters become strings themselves
  size_t bytes = 0;
  if (value.is_string()) bytes = kBytesPerCharacter * value.str().size();
  if (value.is_sequence()) bytes = sizeof(Value) * value.items().size();
  if (value.is_dict()) bytes = kBytesPerCharacter * value.dict().entries().size();
  TALON_RETURN_IF_ERROR(Charge(bytes));
  return jinja::Iterate(value);
}

Value Runtime::MakeNamespace(std::map<std::string, Value> attributes) {
  namespaces_.push_back({std::move(attributes)});
  return Value(&namespaces_.back());
}

Status Runtime::Raise(const std::string& message) {
  raised_ = true;
  return InvalidArgument("{}", message);
}

}  // namespace talon::jinja
