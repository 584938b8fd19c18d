#include "model/decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "base/file.h"
#include "base/json.h"
#include "compute/reference/reference_backend.h"
#include "compute/test_device.h"
#include "model/single_sequence.h"
#include "model/test_model.h"

namespace talon {
namespace {

std::vector<int32_t> SomeTokens(int count, int vocab) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * 37 + 11) % vocab);
  return tokens;
}

// Rows of a prompt of 40 tokens and of a tree of 6 nodes after it.
SingleSequence::Rows RunPromptAndTree(Decoder* decoder, Backend* backend,
                                      DType kv_dtype = DType::kF32) {
  auto sequence = SingleSequence::Create(decoder, backend,
                                         {.max_tokens = 64, .max_tree = 8, .kv_dtype = kv_dtype});
  EXPECT_TRUE(sequence.ok());
  const auto tokens = SomeTokens(46, decoder->config().vocab_size);
  auto rows = sequence->Append(std::span(tokens).first(40));
  EXPECT_TRUE(rows.ok()) << rows.status().message();
  const auto tree = sequence->Tree(std::span(tokens).last(6), std::vector{-1, -1, 0, 0, 1, 2});
  EXPECT_TRUE(tree.ok()) << tree.status().message();
  rows->logits.insert(rows->logits.end(), tree->logits.begin(), tree->logits.end());
  return *rows;
}

SingleSequence::Rows RunDirectory(const std::string& dir, Backend* backend,
                                  const LoadOptions& options = kFewRows) {
  auto decoder = Decoder::Load(dir, backend, options);
  EXPECT_TRUE(decoder.ok()) << decoder.status().message();
  if (!decoder.ok()) return {};
  return RunPromptAndTree(decoder->get(), backend);
}

float MaxAbs(const std::vector<float>& values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// Relative rounding error of one activation as the CPU backend's kernels take it: those for bf16
// and f16 weights round activations to the weight's type.
float Epsilon(DType dtype) {
  return dtype == DType::kBF16 ? 0x1p-9f : dtype == DType::kF16 ? 0x1p-12f : 0x1p-24f;
}

// The roundings of some ten products and sums of up to 512 terms in a row, as a share of the
// largest value.
void ExpectClose(const std::vector<float>& got, const std::vector<float>& expected, DType dtype) {
  ASSERT_EQ(got.size(), expected.size());
  const float rounding = dtype == DType::kF32 ? std::sqrt(512.0f) : 1.0f;
  const float tolerance = 16 * rounding * Epsilon(dtype) * MaxAbs(expected);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], tolerance) << "value " << i;
  }
}

// Sizes that are multiples of nothing, every family, every rope kind.
struct OddModel {
  const char* name;
  Json overrides;
  DType dtype;
};

class DecoderOddSizes : public testing::TestWithParam<OddModel> {};

TEST_P(DecoderOddSizes, CpuAgreesWithReference) {
  const TempDirectory dir;
  Json config = SmallConfig();
  config.update(GetParam().overrides);
  WriteModel(dir.path(), config, GetParam().dtype, 17);
  const auto reference = NewReferenceBackend();
  const auto cpu = NewTestBackend(kCpuThreads);
  for (const WeightFormat format : {WeightFormat::kAsStored, WeightFormat::kF32}) {
    LoadOptions options = kFewRows;
    options.weights = format;
    const auto expected = RunDirectory(dir.path(), reference.get(), options);
    const auto got = RunDirectory(dir.path(), cpu.get(), options);
    const DType dtype = format == WeightFormat::kF32 ? DType::kF32 : GetParam().dtype;
    EXPECT_GT(MaxAbs(expected.logits), 0.1f);
    ExpectClose(got.logits, expected.logits, dtype);
    ExpectClose(got.hidden, expected.hidden, dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, DecoderOddSizes,
    testing::Values(
        OddModel{"Llama", {{"attention_bias", true}, {"mlp_bias", true}}, DType::kF32},
        OddModel{"Heads6Of3",
                 {{"num_attention_heads", 6},
                  {"num_key_value_heads", 3},
                  {"head_dim", 24},
                  {"hidden_size", 65},
                  {"vocab_size", 509},
                  {"intermediate_size", 77}},
                 DType::kF32},
        OddModel{
            "OneKvHead", {{"num_key_value_heads", 1}, {"tie_word_embeddings", true}}, DType::kBF16},
        OddModel{"HeadDim2",
                 {{"head_dim", 2}, {"hidden_size", 3}, {"intermediate_size", 1}},
                 DType::kF32},
        OddModel{"Mistral",
                 {{"architectures", {"MistralForCausalLM"}}, {"sliding_window", nullptr}},
                 DType::kF16},
        OddModel{
            "Qwen2", {{"architectures", {"Qwen2ForCausalLM"}}, {"hidden_size", 40}}, DType::kBF16},
        OddModel{"Qwen3", {{"architectures", {"Qwen3ForCausalLM"}}, {"head_dim", 20}}, DType::kF32},
        OddModel{"Linear", {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}, DType::kF32},
        OddModel{"Yarn", {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}}, DType::kF32},
        OddModel{"PartialRotary", {{"head_dim", 16}, {"partial_rotary_factor", 0.5}}, DType::kF32}),
    [](const auto& info) { return std::string(info.param.name); });

double NormOfDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(double{a[i]} - b[i], 2);
  return std::sqrt(squares);
}

TEST(Decoder, Fp8ActivationsAreThoseOfTheReference) {
  const TempDirectory dir;
  Json config = SmallConfig();
  config.update({{"hidden_size", 200}, {"intermediate_size", 300}});
  WriteModel(dir.path(), config, DType::kBF16, 17);
  const auto reference = NewReferenceBackend();
  const auto device = NewTestBackend(kCpuThreads);
  LoadOptions options = kFewRows;
  options.weights = WeightFormat::kFp8;
  const auto exact = RunDirectory(dir.path(), reference.get(), options).logits;
  options.activations = ActivationFormat::kFp8;
  const auto expected = RunDirectory(dir.path(), reference.get(), options).logits;
  const auto got = RunDirectory(dir.path(), device.get(), options).logits;
  const double rounding = NormOfDifference(expected, exact);
  EXPECT_GT(rounding, 1e-3 * NormOfDifference(exact, std::vector<float>(exact.size())));
  // A device rounds weights to bf16, or rows: values between two codes may take another one.
  EXPECT_LT(NormOfDifference(got, expected), 0.8 * rounding);
}

TEST(Decoder, Fp8ActivationsNeedFp8Weights) {
  const TempDirectory dir;
  WriteModel(dir.path(), SmallConfig(), DType::kBF16, 17);
  const auto backend = NewTestBackend(kCpuThreads);
  LoadOptions options = kFewRows;
  options.activations = ActivationFormat::kFp8;
  const auto decoder = Decoder::Load(dir.path(), backend.get(), options);
  ASSERT_FALSE(decoder.ok());
  EXPECT_EQ(decoder.status().message(),
            "activations: fp8, but no dense layer of the model has fp8 weights");
}

// Experts, windows and sinks. In float32 only: a router that rounds differently chooses
// differently.
class DecoderExperts : public testing::TestWithParam<const char*> {};

TEST_P(DecoderExperts, CpuAgreesWithReference) {
  const TempDirectory dir;
  WriteModel(dir.path(), ExpertsConfig(GetParam()), DType::kF32, 18);
  const auto reference = NewReferenceBackend();
  const auto cpu = NewTestBackend(kCpuThreads);
  LoadOptions options = kFewRows;
  options.weights = WeightFormat::kF32;
  const auto expected = RunDirectory(dir.path(), reference.get(), options);
  const auto got = RunDirectory(dir.path(), cpu.get(), options);
  EXPECT_GT(MaxAbs(expected.logits), 0.1f);
  ExpectClose(got.logits, expected.logits, DType::kF32);
}

INSTANTIATE_TEST_SUITE_P(All, DecoderExperts,
                         testing::Values("gpt_oss", "gpt_oss_mxfp4", "qwen3_moe"),
                         [](const auto& info) { return std::string(info.param); });

// Rewrites a model's separate experts as stacks of the given form.
void StackExperts(const std::string& dir, const ModelConfig& config, bool input_first) {
  auto tensors = RandomTensors(config, DType::kF32, 19);
  const auto find = [&](const std::string& name) -> const OwnedTensor& {
    return *std::ranges::find(tensors, name, &OwnedTensor::name);
  };
  std::vector<OwnedTensor> stacked;
  for (const OwnedTensor& tensor : tensors) {
    if (tensor.name.find(".experts.") == std::string::npos) stacked.push_back(tensor);
  }
  for (int layer = 0; layer < config.num_layers; ++layer) {
    if (!config.IsSparse(layer)) continue;
    const std::string base = fmt::format("model.layers.{}.mlp.experts.", layer);
    for (const bool down : {false, true}) {
      const int64_t rows = down ? config.hidden_size : 2 * config.experts.intermediate_size;
      const int64_t cols = down ? config.experts.intermediate_size : config.hidden_size;
      OwnedTensor stack{.name = base + (down ? "down_proj" : "gate_up_proj"),
                        .dtype = DType::kF32,
                        .shape = {config.experts.count, rows, cols},
                        .bytes = {}};
      if (input_first) std::swap(stack.shape[1], stack.shape[2]);
      for (int e = 0; e < config.experts.count; ++e) {
        std::vector<uint8_t> bytes;
        for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
          if ((std::string(part) == "down_proj") != down) continue;
          const auto& from = find(fmt::format("{}{}.{}.weight", base, e, part)).bytes;
          bytes.insert(bytes.end(), from.begin(), from.end());
        }
        std::vector<uint8_t> turned(bytes.size());
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            std::copy_n(bytes.data() + (r * cols + c) * 4, 4, turned.data() + (c * rows + r) * 4);
          }
        }
        const auto& chosen = input_first ? turned : bytes;
        stack.bytes.insert(stack.bytes.end(), chosen.begin(), chosen.end());
      }
      stacked.push_back(std::move(stack));
    }
  }
  ASSERT_TRUE(WriteTensors(dir + "/model.safetensors", stacked).ok());
}

TEST(Decoder, StackedExpertsGiveTheSameAsSeparateOnes) {
  const auto backend = NewTestBackend(kCpuThreads);
  // 32: the hidden size is twice the experts', so that only down_proj tells the form.
  for (const int ffn : {64, 32, 48}) {
    const TempDirectory dir;
    Json json = ExpertsConfig("qwen3_moe");
    json["moe_intermediate_size"] = ffn;
    WriteModel(dir.path(), json, DType::kF32, 19);
    const auto separate = RunDirectory(dir.path(), backend.get());
    for (const bool input_first : {false, true}) {
      StackExperts(dir.path(), *ParseModelConfig(json, "test"), input_first);
      EXPECT_EQ(RunDirectory(dir.path(), backend.get()).logits, separate.logits)
          << ffn << (input_first ? " input first" : "");
    }
  }
}

TEST(Decoder, PackedExpertsWithoutTheirQuantizationConfigAreRefused) {
  const TempDirectory dir;
  WriteModel(dir.path(), ExpertsConfig("gpt_oss_mxfp4"), DType::kF32, 20);
  ASSERT_TRUE(WriteFile(dir.path() + "/config.json", ExpertsConfig("gpt_oss").dump()).ok());
  const auto backend = NewTestBackend(kCpuThreads);
  const auto decoder = Decoder::Load(dir.path(), backend.get(), kFewRows);
  ASSERT_FALSE(decoder.ok());
  EXPECT_NE(decoder.status().message().find("is packed (_blocks)"), std::string::npos)
      << decoder.status().message();
}

TEST(Decoder, WiderWeightsOfTheSameValuesGiveTheSameResult) {
  const TempDirectory dir;
  WriteModel(dir.path(), SmallConfig(), DType::kBF16, 3);
  const auto backend = NewReferenceBackend();
  LoadOptions wide = kFewRows;
  wide.weights = WeightFormat::kF32;
  EXPECT_EQ(RunDirectory(dir.path(), backend.get()).logits,
            RunDirectory(dir.path(), backend.get(), wide).logits);
}

TEST(Decoder, ShardsOfMixedTypesGiveTheSameAsOneFile) {
  const TempDirectory single;
  const TempDirectory sharded;
  const auto config = ParseModelConfig(SmallConfig(), "config");
  ASSERT_TRUE(config.ok());
  WriteModel(single.path(), SmallConfig(), DType::kBF16, 5);
  ASSERT_TRUE(WriteFile(sharded.path() + "/config.json", SmallConfig().dump()).ok());
  // Every other tensor is widened to f32 and goes to the second file.
  std::vector<OwnedTensor> parts[2];
  Json map;
  int index = 0;
  for (OwnedTensor& tensor : RandomTensors(*config, DType::kBF16, 5)) {
    const int shard = index++ % 2;
    if (shard == 1) {
      const auto count = static_cast<int64_t>(tensor.bytes.size() / 2);
      std::vector<uint8_t> wide(tensor.bytes.size() * 2);
      for (int64_t i = 0; i < count; ++i) {
        StoreElement(wide.data(), DType::kF32, i,
                     LoadElement(tensor.bytes.data(), DType::kBF16, i));
      }
      tensor.dtype = DType::kF32;
      tensor.bytes = wide;
    }
    map[tensor.name] = fmt::format("{}.safetensors", shard);
    parts[shard].push_back(tensor);
  }
  for (int shard = 0; shard < 2; ++shard) {
    const std::string path = fmt::format("{}/{}.safetensors", sharded.path(), shard);
    ASSERT_TRUE(WriteTensors(path, parts[shard]).ok());
  }
  const std::string index_path = sharded.path() + "/model.safetensors.index.json";
  ASSERT_TRUE(WriteFile(index_path, Json({{"weight_map", map}}).dump()).ok());
  const auto backend = NewReferenceBackend();
  EXPECT_EQ(RunDirectory(single.path(), backend.get()).logits,
            RunDirectory(sharded.path(), backend.get()).logits);
}

TEST(Decoder, UnalignedTensorsLoad) {
  const TempDirectory dir;
  WriteModel(dir.path(), SmallConfig(), DType::kF32, 5);
  const auto backend = NewReferenceBackend();
  const auto expected = RunDirectory(dir.path(), backend.get());
  const std::string path = dir.path() + "/model.safetensors";
  std::string file = *ReadFile(path);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  file.insert(8 + length, 1, ' ');  // shifts all data by one byte
  ++length;
  std::memcpy(file.data(), &length, 8);
  ASSERT_TRUE(WriteFile(path, file).ok());
  EXPECT_EQ(RunDirectory(dir.path(), backend.get()).logits, expected.logits);
}

TEST(Decoder, ProgressEndsAtOne) {
  const TempDirectory dir;
  WriteModel(dir.path(), SmallConfig(), DType::kF32, 5);
  const auto backend = NewReferenceBackend();
  std::vector<double> seen;
  LoadOptions options = kFewRows;
  options.progress = [&](double fraction) { seen.push_back(fraction); };
  ASSERT_TRUE(Decoder::Load(dir.path(), backend.get(), options).ok());
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_TRUE(std::ranges::is_sorted(seen));
  EXPECT_EQ(seen.back(), 1.0);
}

TEST(Decoder, TensorsThatContradictTheConfigAreRefusedByName) {
  const TempDirectory dir;
  const std::string path = dir.path() + "/model.safetensors";
  const auto backend = NewReferenceBackend();
  const auto config = ParseModelConfig(SmallConfig(), "config");
  ASSERT_TRUE(WriteFile(dir.path() + "/config.json", SmallConfig().dump()).ok());
  const auto load_error = [&](const std::vector<OwnedTensor>& tensors) {
    EXPECT_TRUE(WriteTensors(path, tensors).ok());
    return Decoder::Load(dir.path(), backend.get(), kFewRows).status().message();
  };
  auto tensors = RandomTensors(*config, DType::kF32, 1);
  auto* last = &tensors.back();
  ASSERT_EQ(last->name, "lm_head.weight");
  last->shape = {32, 96};
  EXPECT_EQ(load_error(tensors),
            path + ": tensor lm_head.weight has shape [32, 96], config.json says [96, 32]");
  last->shape = {96, 32};
  last->dtype = DType::kI32;
  EXPECT_EQ(load_error(tensors),
            path + ": tensor lm_head.weight has dtype i32, expected f32, f16 or bf16");
  tensors.pop_back();
  EXPECT_EQ(load_error(tensors), path + ": tensor lm_head.weight is missing");
}

class DecoderLimits : public testing::Test {
 protected:
  void SetUp() override {
    const auto config = ParseModelConfig(SmallConfig(), "config");
    ASSERT_TRUE(config.ok());
    auto decoder = Decoder::Random(*config, backend_.get(), kFewRows, 1);
    ASSERT_TRUE(decoder.ok());
    decoder_ = *std::move(decoder);
    shape_ = {.num_layers = 2, .kv_heads = 2, .head_dim = 8, .num_blocks = 2, .staging_rows = 1};
    plan_.tokens = {5};
    plan_.positions = plan_.slots = {0};
    plan_.prefix_len = {1};
    plan_.sequence_rows = plan_.block_offsets = {0, 1};
    plan_.block_ids = plan_.output_rows = {0};
    plan_.ancestors = {0};
  }
  std::string Error() {
    ForwardOutput output;
    const Status status = decoder_->Forward(plan_, {shape_, {}}, &output);
    EXPECT_FALSE(status.ok());
    return status.message();
  }
  std::unique_ptr<Backend> backend_ = NewReferenceBackend();
  std::unique_ptr<Decoder> decoder_;
  KvShape shape_;
  PassPlan plan_;
};

TEST_F(DecoderLimits, EachIsAnErrorThatNamesTheNumber) {
  const PassPlan good = plan_;
  plan_.tokens = {96};
  EXPECT_EQ(Error(), "decoder: row 0 has token 96, vocabulary 96");
  plan_.tokens = {-1};
  EXPECT_EQ(Error(), "decoder: row 0 has token -1, vocabulary 96");
  plan_ = good;
  plan_.positions = {256};
  EXPECT_EQ(Error(), "decoder: row 0 has position 256, limit 256");
  plan_ = good;
  plan_.slots = {32};
  EXPECT_EQ(Error(), "decoder: row 0 has slot 32, the cache has 32");
  plan_ = good;
  plan_.slots = {-1};
  shape_.staging_rows = 0;
  EXPECT_EQ(Error(), "decoder: row 0 is staged at 0, the cache has 0 staging rows");
  plan_ = good;
  plan_.output_rows = {1};
  EXPECT_EQ(Error(), "decoder: logits of row 1 wanted, the pass has 1");
  plan_ = good;
  plan_.tokens.resize(65);
  EXPECT_EQ(Error(), "decoder: rows in a pass: 65, must be 1 to 64");
  plan_.tokens.clear();
  EXPECT_EQ(Error(), "decoder: rows in a pass: 0, must be 1 to 64");
  plan_ = good;
  shape_.kv_heads = 1;
  EXPECT_EQ(Error(), "decoder: cache of 2 layers x 1 heads x 8, the model has 2 x 2 x 8");
}

TEST_F(DecoderLimits, CaptureLayersAreChecked) {
  EXPECT_TRUE(decoder_->SetCaptureLayers({0, 2}).ok());
  EXPECT_EQ(decoder_->SetCaptureLayers({3}).message(),
            "decoder: captured layer: 3, must be 0 to 2");
  EXPECT_FALSE(decoder_->SetCaptureLayers({-1}).ok());
}

TEST(Decoder, LastCapturedLayerNormalisesToHidden) {
  const TempDirectory dir;
  Json json = SmallConfig();
  WriteModel(dir.path(), json, DType::kF32, 23);
  const auto backend = NewReferenceBackend();
  auto decoder = Decoder::Load(dir.path(), backend.get(), kFewRows);
  ASSERT_TRUE(decoder.ok());
  ASSERT_TRUE((*decoder)->SetCaptureLayers({2, 0}).ok());
  const auto rows = RunPromptAndTree(decoder->get(), backend.get());
  ASSERT_EQ(rows.features.size(), 40u * 64);
  // Column block 0 is the last layer's output, block 1 the embeddings; hidden = norm(block 0).
  const auto tensors = RandomTensors((*decoder)->config(), DType::kF32, 23);
  const auto tensor = [&](const std::string& name) {
    const auto it = std::ranges::find(tensors, name, &OwnedTensor::name);
    return reinterpret_cast<const float*>(it->bytes.data());
  };
  const float* row = rows.features.data() + 3 * 64;
  const double squares = std::inner_product(row, row + 32, row, 0.0);
  const int token = SomeTokens(46, 96)[3];
  for (int i = 0; i < 32; ++i) {
    const double expected =
        row[i] / std::sqrt(squares / 32 + 1e-6) * tensor("model.norm.weight")[i];
    EXPECT_NEAR(rows.hidden[static_cast<size_t>(3 * 32 + i)], expected, 1e-5);
    EXPECT_EQ(row[32 + i], tensor("model.embed_tokens.weight")[token * 32 + i]);
  }
}

TEST(Decoder, RandomWeightsDependOnTheSeedAndFillTheirSize) {
  const auto backend = NewReferenceBackend();
  const auto config = ParseModelConfig(SmallConfig(), "config");
  const auto logits = [&](uint64_t seed) {
    const auto decoder = Decoder::Random(*config, backend.get(), kFewRows, seed);
    EXPECT_TRUE(decoder.ok());
    // Two layers of 32 x (64 + 32) + 3 x 32 x 48 matrix elements, the head; norms and embedding.
    const size_t matrices = 2 * (32 * 96 + 3 * 32 * 48) + 96 * 32;
    EXPECT_EQ((*decoder)->weight_bytes_per_pass(), matrices * 4);
    EXPECT_EQ((*decoder)->weight_bytes(), (matrices + 96 * 32 + 5 * 32) * 4);
    return RunPromptAndTree(decoder->get(), backend.get()).logits;
  };
  const auto first = logits(1);
  EXPECT_EQ(first, logits(1));
  EXPECT_NE(first, logits(2));
  EXPECT_GT(MaxAbs(first), 0.01f);
}

}  // namespace
}  // namespace talon
