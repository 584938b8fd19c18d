// Answers of /v1/embeddings.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "serve/http/api/answer_writer.h"

namespace talon {
namespace {

// The bytes of the numbers, the lowest first.
std::string BytesOf(std::span<const float> values) {
  std::string bytes;
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<char>(bits >> shift & 0xFF));
    }
  }
  return bytes;
}

std::string Base64(std::string_view bytes) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) {
      group = group << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      text.push_back(j <= count ? kDigits[group >> (18 - 6 * j) & 63] : '=');
    }
  }
  return text;
}

class EmbeddingsWriter : public AnswerWriter {
 public:
  explicit EmbeddingsWriter(const AnswerParts& parts)
      : base64_(parts.request.base64), model_(parts.model) {}

  Json Whole(std::span<const GenerateResult* const> results, const Usage& usage) override {
    Json data = Json::array();
    for (size_t i = 0; i < results.size(); ++i) {
      const std::vector<float>& vector = results[i]->embedding;
      data.push_back({{"object", "embedding"},
                      {"index", i},
                      {"embedding", base64_ ? Json(Base64(BytesOf(vector))) : Json(vector)}});
    }
    return {
        {"object", "list"},
        {"data", std::move(data)},
        {"model", model_},
        {"usage", {{"prompt_tokens", usage.prompt_tokens}, {"total_tokens", usage.prompt_tokens}}}};
  }

  // There are no streams of vectors.
  std::string Update(int, const RequestUpdate&) override { return ""; }
  std::string EndChoice(int, const GenerateResult&) override { return ""; }
  std::string End(const Usage&) override { return ""; }
  std::string Fail(const ApiError&) override { return ""; }

 private:
  bool base64_;
  std::string model_;
};

}  // namespace

std::unique_ptr<AnswerWriter> NewEmbeddingsWriter(const AnswerParts& parts) {
  return std::make_unique<EmbeddingsWriter>(parts);
}

}  // namespace talon
