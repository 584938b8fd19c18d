#include "model/files/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "compute/reference/reference_backend.h"
#include "compute/test_device.h"
#include "model/files/safetensors.h"
#include "model/test_model.h"

namespace talon {
namespace {

const std::string kGoldens = TALON_SOURCE_DIR "/tests/data/goldens/";

std::unique_ptr<Backend> NewBackend(const std::string& name) {
  return name == "cpu" ? NewTestBackend(kCpuThreads) : NewReferenceBackend();
}

void ExpectAllPass(const std::string& dir, Backend* backend, WeightFormat weights, size_t cases) {
  const LoadOptions options{.weights = weights};
  auto decoder = Decoder::Load(dir, backend, options);
  ASSERT_TRUE(decoder.ok()) << decoder.status().message();
  const auto results = CheckGolden(decoder->get(), backend, dir + "/golden.safetensors", {});
  ASSERT_TRUE(results.ok()) << results.status().message();
  EXPECT_EQ(results->size(), cases);
  for (const GoldenCase& result : *results) {
    EXPECT_TRUE(result.passed) << result.name << ": " << result.detail;
  }
}

class Goldens : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Goldens, LogitsHiddenStatesGreedyTextAndTreeAgree) {
  const auto [family, backend_name] = GetParam();
  const auto backend = NewBackend(backend_name);
  const bool llama3 = std::string_view(family) == "llama3";  // in float32; the other is in bf16
  ExpectAllPass(kGoldens + family, backend.get(),
                llama3 ? WeightFormat::kAsStored : WeightFormat::kF32, llama3 ? 6 : 5);
}

INSTANTIATE_TEST_SUITE_P(All, Goldens,
                         testing::Combine(testing::Values("llama3", "qwen3"),
                                          testing::Values("reference", "cpu")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param);
                         });

TEST(Goldens, TrainedModelInFloat32) {
  const auto backend = NewTestBackend(kCpuThreads);
  ExpectAllPass(TALON_SOURCE_DIR "/models/tiny", backend.get(), WeightFormat::kF32, 3);
}

// Copies a golden file, lets the caller change one tensor, and checks the llama3 model with it.
class ChangedGolden : public testing::Test {
 protected:
  Result<std::vector<GoldenCase>> Check(const std::string& name,
                                        const std::function<void(OwnedTensor*)>& change) {
    const auto reader = SafetensorsReader::OpenFile(kGoldens + "llama3/golden.safetensors");
    std::vector<OwnedTensor> tensors;
    for (const auto& [key, view] : reader->tensors()) {
      tensors.push_back({key, view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()}});
      if (key == name) change(&tensors.back());
    }
    const std::string path = dir_.path() + "/golden.safetensors";
    EXPECT_TRUE(WriteTensors(path, tensors).ok());
    auto decoder = Decoder::Load(kGoldens + "llama3", backend_.get(), {});
    return CheckGolden(decoder->get(), backend_.get(), path, {});
  }
  static std::vector<std::string> Failed(const std::vector<GoldenCase>& cases) {
    std::vector<std::string> names;
    for (const GoldenCase& result : cases) {
      if (!result.passed) names.push_back(result.name);
    }
    return names;
  }
  TempDirectory dir_;
  std::unique_ptr<Backend> backend_ = NewCpuBackend(1);
};

void AddToFloat(OwnedTensor* tensor, size_t index, float amount) {
  float value;
  std::memcpy(&value, tensor->bytes.data() + 4 * index, 4);
  value += amount;
  std::memcpy(tensor->bytes.data() + 4 * index, &value, 4);
}

TEST_F(ChangedGolden, OneWrongNumberFailsItsCaseOnly) {
  const auto off = [](OwnedTensor* tensor) { AddToFloat(tensor, 100, 1e-3f); };
  for (const auto& [tensor, failed] :
       std::vector<std::pair<std::string, std::string>>{{"long.logits", "long logits"},
                                                        {"short.hidden.8", "short hidden"},
                                                        {"short.hidden.3", "short hidden"},
                                                        {"tree.logits", "tree logits"}}) {
    const auto cases = Check(tensor, off);
    ASSERT_TRUE(cases.ok()) << cases.status().message();
    EXPECT_EQ(Failed(*cases), std::vector{failed});
  }
}

TEST_F(ChangedGolden, NanFails) {
  const auto cases = Check("short.logits", [](OwnedTensor* tensor) { AddToFloat(tensor, 0, NAN); });
  ASSERT_TRUE(cases.ok());
  EXPECT_EQ(Failed(*cases), std::vector<std::string>{"short logits"});
}

TEST_F(ChangedGolden, WrongGreedyTokenIsCounted) {
  const auto cases = Check("short.greedy", [](OwnedTensor* tensor) { tensor->bytes[4 * 7] ^= 1; });
  ASSERT_TRUE(cases.ok());
  EXPECT_EQ(Failed(*cases), std::vector<std::string>{"short greedy"});
  const auto it = std::ranges::find(*cases, "short greedy", &GoldenCase::name);
  EXPECT_TRUE(it->detail.starts_with("7 of 40 tokens equal, then ")) << it->detail;
}

TEST_F(ChangedGolden, FilesThatDoNotFitAreErrors) {
  const auto error = [&](const std::string& name, const std::function<void(OwnedTensor*)>& change) {
    const auto cases = Check(name, change);
    EXPECT_FALSE(cases.ok());
    return cases.status().message();
  };
  EXPECT_NE(error("short.logits",
                  [](OwnedTensor* t) {
                    t->shape = {512, 5};
                  })
                .find("short.logits has shape [512, 5], the model gives [5, 512]"),
            std::string::npos);
  EXPECT_NE(error("short.input_ids", [](OwnedTensor* t) { t->dtype = DType::kF32; })
                .find("short.input_ids has dtype f32, expected i32"),
            std::string::npos);
  EXPECT_NE(
      error("short.input_ids", [](OwnedTensor* t) { t->bytes[1] = 2; }).find("vocabulary 512"),
      std::string::npos);
  EXPECT_NE(
      error("tree.parents", [](OwnedTensor* t) { t->bytes[0] = 50; }).find("node 0 has parent"),
      std::string::npos);
}

}  // namespace
}  // namespace talon
