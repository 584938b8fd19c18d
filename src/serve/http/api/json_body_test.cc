#include "serve/http/api/json_body.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <string>

#include "base/json.h"
#include "serve/http/api/api_request.h"

namespace {

// What this thread has allocated and not freed, and whether it may allocate at all.
thread_local int64_t allocated = 0;
thread_local int64_t most_allocated = 0;
thread_local bool may_allocate = true;
constexpr size_t kHeader = 16;

}  // namespace

void* operator new(size_t size) {
  if (!may_allocate) throw std::bad_alloc();
  auto* block = static_cast<size_t*>(std::malloc(size + kHeader));
  if (block == nullptr) throw std::bad_alloc();
  *block = size;
  allocated += static_cast<int64_t>(size);
  most_allocated = std::max(most_allocated, allocated);
  return reinterpret_cast<char*>(block) + kHeader;
}
void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  auto* block = reinterpret_cast<size_t*>(static_cast<char*>(memory) - kHeader);
  allocated -= static_cast<int64_t>(*block);
  std::free(block);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace talon {
namespace {

std::string Repeated(const std::string& part, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += part;
  return text;
}

// The most memory that a call takes.
template <typename Call>
int64_t PeakOf(const Call& call) {
  most_allocated = allocated;
  const int64_t before = allocated;
  call();
  return most_allocated - before;
}

std::string BodyError(const std::string& text) {
  const auto body = JsonBody::Parse(text);
  return body.ok() ? "" : body.status().message();
}

TEST(JsonBody, MembersAreThoseOfTheTree) {
  for (
      const std::string text : {
          R"({})",
          R"( { "a" : 1 , "b":[1,{"c":"]}"},[]], "c":"x\"y\\" } )",
          R"({"a":-1.5e3,"b":true,"m":-1,"n":[-2,{"o":-9223372036854775808}],"c":null,"d":{},"e":"\u00e9","":0,"\u0061":2})",
          "\xef\xbb\xbf{\"a\":[[[]]],\n\t\"b\":{\"a\":{\"a\":\"{\"}}}",
          R"({"a":{"k":[1],"k":{"m":2}},"a":{"k":3,"k":[4,5]}})",
      }) {
    const Json whole = Json::parse(text);
    auto body = JsonBody::Parse(text);
    ASSERT_TRUE(body.ok()) << text << body.status().message();
    EXPECT_EQ(body->Keys().size(), whole.size()) << text;
    for (const auto& [key, value] : whole.items()) {
      const auto found = body->Find(key);
      ASSERT_TRUE(found.ok() && *found != nullptr) << text << key;
      EXPECT_EQ(**found, value) << text;
      EXPECT_EQ(body->Take(key), value) << text;
    }
    EXPECT_EQ(*body->Find("nowhere"), nullptr);
  }
}

TEST(JsonBody, WhatIsNotAnObjectIsRefused) {
  for (const char* text : {"", "[1]", "null", "\"a\"", "{", "{\"a\":1,}", "{\"a\":1}}", "{'a':1}",
                           "{\"a\":01}", "{\"a\":\"\xff\"}", "{\"a\":NaN}", "{\"a\":-1,\"b\":x}",
                           "{\"a\":[1,true,null,\"\",0.5,{}],\"b\":x}"}) {
    EXPECT_TRUE(BodyError(text).starts_with("the body: ")) << text << BodyError(text);
  }
  EXPECT_NE(BodyError(std::string("{}\0", 3)), "");
  EXPECT_NE(BodyError(Repeated("[", 100000)).find("nested"), std::string::npos);
  EXPECT_NE(BodyError("{\"a\":" + Repeated("[", 300) + Repeated("]", 300) + "}").find("nested"),
            std::string::npos);
}

TEST(JsonBody, ManyParametersAreRefused) {
  std::string text = "{";
  for (size_t i = 0; i <= JsonBody::kMaxMembers; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
  }
  EXPECT_NE(BodyError(text + "}").find("parameters"), std::string::npos);
}

TEST(JsonBody, NumbersAreNotQuoted) {
  const std::string message = BodyError("{\"max_tokens\":" + std::string(1 << 20, '1') + "}");
  EXPECT_NE(message.find("out of range"), std::string::npos);
  EXPECT_LT(message.size(), 100);
}

TEST(JsonBody, IgnoredAndUnknownMembersTakeNoMemory) {
  const std::string values = "[" + Repeated("{},", 100'000) + "0]";
  for (const char* key : {"metadata", "nonsense"}) {
    const std::string text = R"({"prompt":"x",")" + std::string(key) + "\":" + values + "}";
    ApiRequest request;
    std::optional<ApiError> error;
    const int64_t peak = PeakOf(
        [&] { error = ParseApiRequest(text, Endpoint::kCompletions, ApiDefaults{}, &request); });
    EXPECT_EQ(error.has_value(), std::string(key) == "nonsense");
    // A tree takes 27 times the text. The parser keeps the brackets since the last other token.
    EXPECT_LT(peak, static_cast<int64_t>(4 * values.size())) << key;
  }
}

TEST(JsonBody, TreesAreBounded) {
  const std::string ids = "{\"prompt\":[" + Repeated("9,", 1 << 20) + "9]}";
  auto body = JsonBody::Parse(ids);
  ASSERT_TRUE(body.ok());
  ASSERT_TRUE(body->Find("prompt").ok());  // a list of ids is as large as its text allows
  const std::string objects = "{\"messages\":[" + Repeated("{},", 1 << 20) + "{}]}";
  ApiRequest request;
  std::optional<ApiError> error;
  const int64_t peak =
      PeakOf([&] { error = ParseApiRequest(objects, Endpoint::kChat, ApiDefaults{}, &request); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->status, 413);
  EXPECT_EQ(error->param, "messages");
  EXPECT_LT(peak, static_cast<int64_t>(16 * objects.size()));
}

TEST(JsonBody, ATreeEndsWithoutMemory) {
  Json tree = Json::parse("[" + Repeated("[1,{\"b\":[2]}],", 1000) + "0]");
  may_allocate = false;  // the library's destructor would end the process
  DestroyJson(&tree);
  may_allocate = true;
  EXPECT_TRUE(tree.is_null());
}

TEST(JsonBody, ABodyEndsWithoutMemory) {
  const std::string text = "{\"prompt\":[" + Repeated("[1,{\"b\":[2]}],", 1000) + "0]}";
  auto body = JsonBody::Parse(text);
  ASSERT_TRUE(body.ok());
  ASSERT_TRUE((*body->Find("prompt"))->is_array());
  may_allocate = false;
  { const JsonBody ends_here = std::move(*body); }
  may_allocate = true;
  EXPECT_TRUE(body->Keys().empty());
}

}  // namespace
}  // namespace talon
