#include "serve/http/api/json_body.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/json.h"

namespace talon {
namespace {

// What the parts of a tree take, headers of the allocator included.
constexpr size_t kValueBytes = sizeof(Json);
constexpr size_t kTextBytes = sizeof(std::string) + 16;
constexpr size_t kContainerBytes = 64;
constexpr size_t kMemberBytes = 112;

// A list of token ids takes eight times its text; the rest is for short texts in many objects.
size_t TreeLimit(std::string_view text) { return 8 * text.size() + (size_t{4} << 20); }

constexpr std::string_view kJsonBlanks = " \t\r\n";

// Checks a text and keeps nothing of it but the error.
class Checker : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_object(size_t) override { return Open(); }
  bool key(std::string&) override { return true; }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    const bool number = dynamic_cast<const Json::out_of_range*>(&error) != nullptr;
    status_ = number ? InvalidArgument("the body: a number out of range before byte {}", position)
                     : InvalidArgument("the body: not valid JSON at byte {}", position);
    return false;
  }
  const Status& status() const { return status_; }

 private:
  bool Open() {
    if (++depth_ <= JsonBody::kMaxNesting) return true;
    status_ =
        InvalidArgument("the body: JSON nested more than {} levels deep", JsonBody::kMaxNesting);
    return false;
  }
  bool Close() {
    --depth_;
    return true;
  }

  int depth_ = 0;
  Status status_ = OkStatus();
};

// Builds the tree of a text that a Checker has passed, up to a limit.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(size_t limit, Json* root) : left_(limit), next_(root) {}

  bool null() override { return Put(nullptr, 0); }
  bool boolean(bool value) override { return Put(value, 0); }
  bool number_integer(int64_t value) override { return Put(value, 0); }
  bool number_unsigned(uint64_t value) override { return Put(value, 0); }
  bool number_float(double value, const std::string&) override { return Put(value, 0); }
  bool string(std::string& value) override {
    const size_t bytes = kTextBytes + value.size();
    return Put(std::move(value), bytes);
  }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool key(std::string& name) override {
    if (!Spend(kMemberBytes + name.size())) return false;
    next_ = &(*open_.back())[std::move(name)];
    DestroyJson(next_);  // the last of several members with one name counts
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  bool Spend(size_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }
  bool Put(Json value, size_t bytes) {
    if (!Spend(kValueBytes + bytes)) return false;
    if (!open_.empty() && open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      next_ = &open_.back()->back();
    } else {
      *next_ = std::move(value);
    }
    return true;
  }
  bool Open(Json container) {
    if (!Put(std::move(container), kContainerBytes)) return false;
    open_.push_back(next_);
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  size_t left_;
  Json* next_;  // where the next value goes, unless that is the end of an array
  std::vector<Json*> open_;
};

// Walks over the members of an object in a text that a Checker has passed.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool TakeIf(char expected) {
    SkipBlanks();
    if (at_ >= text_.size() || text_[at_] != expected) return false;
    ++at_;
    return true;
  }
  // The text of the value that is next.
  std::string_view TakeValue() {
    SkipBlanks();
    const size_t begin = at_;
    int depth = 0;
    do {
      SkipToken(&depth);
    } while (depth > 0);
    return text_.substr(begin, at_ - begin);
  }

 private:
  void SkipBlanks() { at_ = std::min(text_.find_first_not_of(kJsonBlanks, at_), text_.size()); }
  void SkipToken(int* depth) {
    const char c = text_[at_++];
    if (c == '"') return SkipString();
    if (c == '[' || c == '{') ++*depth;
    if (c == ']' || c == '}') --*depth;
    if (*depth == 0 && c != ']' && c != '}') {  // a number, true, false or null
      at_ = std::min(text_.find_first_of(" \t\r\n,]}", at_), text_.size());
    }
  }
  void SkipString() {
    while (text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    ++at_;
  }

  std::string_view text_;
  size_t at_ = 0;
};

Status CheckText(std::string_view text) {
  const size_t nul = text.find('\0');  // ends the parser's text
  if (nul != std::string_view::npos) {
    return InvalidArgument("the body: not valid JSON at byte {}", nul);
  }
  Checker checker;
  Json::sax_parse(text, &checker);
  return checker.status();
}

}  // namespace

struct JsonBody::Tree {
  Json root;
  ~Tree() { DestroyJson(&root); }
};

JsonBody::JsonBody() = default;
JsonBody::~JsonBody() = default;
JsonBody::JsonBody(JsonBody&& other) noexcept = default;

Result<JsonBody> JsonBody::Parse(std::string_view text) {
  TALON_RETURN_IF_ERROR(CheckText(text));
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  JsonBody body;
  TALON_RETURN_IF_ERROR(body.Split(text));
  return body;
}

Status JsonBody::Split(std::string_view text) {
  Scanner scanner(text);
  if (!scanner.TakeIf('{')) return InvalidArgument("the body: must be an object");
  while (!scanner.TakeIf('}')) {
    std::string key;
    Json::parse(scanner.TakeValue()).get_to(key);
    scanner.TakeIf(':');
    members_[std::move(key)].text = scanner.TakeValue();
    if (members_.size() > kMaxMembers) {
      return InvalidArgument("the body: more than {} parameters", kMaxMembers);
    }
    scanner.TakeIf(',');
  }
  return OkStatus();
}

Result<const Json*> JsonBody::Find(std::string_view key) {
  const auto at = members_.find(key);
  if (at == members_.end()) return nullptr;
  Member& member = at->second;
  if (member.tree == nullptr) {
    auto tree = std::make_unique<Tree>();
    Builder builder(TreeLimit(member.text), &tree->root);
    if (!Json::sax_parse(member.text, &builder)) {
      return ResourceExhausted("too many values in {} bytes", member.text.size());
    }
    member.tree = std::move(tree);
  }
  return &member.tree->root;
}

Json JsonBody::Take(std::string_view key) {
  return std::exchange(members_.find(key)->second.tree->root, Json::array());
}

std::vector<std::string_view> JsonBody::Keys() const {
  std::vector<std::string_view> keys;
  for (const auto& [key, member] : members_) keys.push_back(key);
  return keys;
}

}  // namespace talon
