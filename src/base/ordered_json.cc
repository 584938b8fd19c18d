#include "base/ordered_json.h"

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"

namespace talon {
namespace {

// Builds the value from the parser's events. Open containers lie on a stack of their own, so that
// nothing points into a vector that may still grow.
class Builder : public nlohmann::json_sax<OrderedJson> {
 public:
  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(OrderedJson::binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(OrderedJson::object()); }
  bool start_array(size_t) override { return Open(OrderedJson::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(std::string& value) override {
    open_.back().key = std::move(value);
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error_position_ = position;
    return false;
  }

  OrderedJson Take() { return std::move(root_); }
  bool too_deep() const { return too_deep_; }
  size_t error_position() const { return error_position_; }

 private:
  struct Container {
    OrderedJson value;
    std::string key;                                 // key of the next member
    std::unordered_map<std::string, size_t> places;  // places of an object's members
  };

  bool Open(OrderedJson empty) {
    too_deep_ = open_.size() == kMaxJsonNesting;
    if (!too_deep_) open_.push_back({.value = std::move(empty)});
    return !too_deep_;
  }

  bool Close() {
    OrderedJson value = std::move(open_.back().value);
    open_.pop_back();
    return Add(std::move(value));
  }

  bool Add(OrderedJson value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Container& parent = open_.back();
    if (parent.value.is_array()) {
      parent.value.push_back(std::move(value));
      return true;
    }
    auto& members = parent.value.get_ref<OrderedJson::object_t&>();
    const auto [place, is_new] = parent.places.emplace(parent.key, members.size());
    if (is_new) {  // the vector's own, which does not search
      members.OrderedJson::object_t::Container::emplace_back(std::move(parent.key),
                                                             std::move(value));
    } else {
      (members.begin() + place->second)->second = std::move(value);
    }
    return true;
  }

  OrderedJson root_;
  std::vector<Container> open_;
  bool too_deep_ = false;
  size_t error_position_ = 0;
};

}  // namespace

Result<OrderedJson> ParseOrderedJson(std::string_view text, const std::string& what) {
  Builder builder;
  if (OrderedJson::sax_parse(text.begin(), text.end(), &builder)) return builder.Take();
  if (builder.too_deep()) {
    return InvalidArgument("{}: JSON nested more than {} levels deep", what, kMaxJsonNesting);
  }
  return InvalidArgument("{}: not valid JSON at byte {}", what, builder.error_position());
}

}  // namespace talon
