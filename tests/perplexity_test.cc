// Perplexity of the bundled model on a fixed text: what the formats of weights and KV cost.
#include "model/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "compute/test_device.h"
#include "model/decoder.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {
namespace {

constexpr int kMaxTokens = 800;
const std::string kRoot = TALON_SOURCE_DIR;
const std::string kModel = kRoot + "/models/tiny";

// Conversations that the model was trained for but has not seen: questions, each with its answer.
std::vector<int32_t> FixedText() {
  std::istringstream lines(ReadFile(kRoot + "/tests/data/tasks.jsonl").value());
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const Json item = ParseJson(line, "tasks.jsonl").value();
    if (!item.contains("answer")) continue;
    text += item.at("messages").back().at("content").get<std::string>() + "\n" +
            item.at("answer").get<std::string>() + "\n\n";
    if (text.size() > 10 * kMaxTokens) break;
  }
  const auto tokenizer = Tokenizer::Load(kModel + "/tokenizer.json").value();
  std::vector<int32_t> tokens = tokenizer->Encode(text, /*add_special_tokens=*/true).value();
  if (tokens.size() > kMaxTokens) tokens.resize(kMaxTokens);
  return tokens;
}

struct Formats {
  WeightFormat weights;
  DType kv_dtype;
  ActivationFormat activations = ActivationFormat::kAuto;
};

double PerplexityOf(const Formats& formats, const std::vector<int32_t>& tokens) {
  const auto backend = NewTestBackend(2);
  const LoadOptions options{.weights = formats.weights,
                            .activations = formats.activations,
                            .max_rows = kPerplexityRows,
                            .max_output_rows = kPerplexityRows};
  const auto decoder = Decoder::Load(kModel, backend.get(), options).value();
  return Perplexity(decoder.get(), backend.get(), tokens, formats.kv_dtype).value();
}

TEST(PerplexityTest, FormatsCostLittle) {
  const std::vector<int32_t> tokens = FixedText();
  ASSERT_GT(tokens.size(), 500u);
  const double exact = PerplexityOf({WeightFormat::kF32, DType::kF32}, tokens);
  std::printf("%zu tokens, weights f32, KV f32: perplexity %.4f\n", tokens.size(), exact);
  EXPECT_LT(exact, 200);  // the model has learnt something: a uniform guess has 8192
  const struct {
    const char* name;
    Formats formats;
    double limit;  // limit of the relative difference to f32
  } cases[] = {
      {"weights bf16, KV f32", {WeightFormat::kBF16, DType::kF32}, 0.005},
      {"weights f16, KV f32", {WeightFormat::kF16, DType::kF32}, 0.005},
      {"weights fp8, KV f32", {WeightFormat::kFp8, DType::kF32}, 0.04},
      {"weights, activations fp8", {WeightFormat::kFp8, DType::kF32, ActivationFormat::kFp8}, 0.06},
      {"weights int8, KV f32", {WeightFormat::kInt8, DType::kF32}, 0.025},
      {"weights int4, KV f32", {WeightFormat::kInt4, DType::kF32}, 0.1},
      {"weights f32, KV f16", {WeightFormat::kF32, DType::kF16}, 0.005},
      {"weights f32, KV bf16", {WeightFormat::kF32, DType::kBF16}, 0.005},
      {"weights f32, KV fp8", {WeightFormat::kF32, DType::kF8E4M3}, 0.02},
      {"weights f32, KV int8", {WeightFormat::kF32, DType::kI8}, 0.01},
      {"weights int8, KV bf16", {WeightFormat::kInt8, DType::kBF16}, 0.025}};
  for (const auto& one : cases) {
    const double perplexity = PerplexityOf(one.formats, tokens);
    const double difference = perplexity / exact - 1;
    std::printf("%-22s perplexity %.4f, %+.3f%%\n", one.name, perplexity, 100 * difference);
    EXPECT_LT(std::abs(difference), one.limit) << one.name;
  }
}

}  // namespace
}  // namespace talon
