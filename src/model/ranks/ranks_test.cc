// One model on 1, 2, 4 and 8 ranks: the same bits.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <future>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/contain.h"
#include "base/file.h"
#include "base/json.h"
#include "compute/reference/reference_backend.h"
#include "model/ranks/memory.h"
#include "model/ranks/messages.h"
#include "model/ranks/test_ranks.h"
#include "model/single_sequence.h"
#include "model/test_model.h"

namespace talon {
namespace {

Json ConfigOf(const std::string& family) {
  const Json sizes = {{"num_attention_heads", 16}, {"num_key_value_heads", 8}, {"head_dim", 16},
                      {"hidden_size", 64},         {"intermediate_size", 320}, {"vocab_size", 301}};
  if (family == "llama" || family == "qwen3" || family == "qwen2") {
    Json config = SmallConfig();
    config.update(sizes);
    if (family == "llama") config.update({{"attention_bias", true}, {"mlp_bias", true}});
    if (family == "qwen2") {
      config.update({{"architectures", {"Qwen2ForCausalLM"}}, {"tie_word_embeddings", true}});
    }
    if (family == "qwen3") config["architectures"] = {"Qwen3ForCausalLM"};
    return config;
  }
  Json config = ExpertsConfig(family);
  const Json experts_hidden = config["hidden_size"];
  config.update(sizes);
  config["hidden_size"] = experts_hidden;
  if (family != "qwen3_moe") config["intermediate_size"] = 64;
  return config;
}

// Where sizes are compared, which devices pad.
std::unique_ptr<Backend> NewHostBackend() { return NewCpuBackend(1, false); }

// A prompt, then a tree after it.
std::vector<float> PromptAndTree(Decoder* decoder, Backend* backend) {
  auto sequence = SingleSequence::Create(decoder, backend, {.max_tokens = 64, .max_tree = 8});
  EXPECT_TRUE(sequence.ok());
  std::vector<int32_t> tokens;
  for (int i = 0; i < 36; ++i) tokens.push_back((i * 37 + 11) % decoder->config().vocab_size);
  auto rows = sequence->Append(std::span(tokens).first(30));
  EXPECT_TRUE(rows.ok()) << rows.status().message();
  const auto tree = sequence->Tree(std::span(tokens).last(6), std::vector{-1, -1, 0, 0, 1, 2});
  EXPECT_TRUE(tree.ok()) << tree.status().message();
  std::vector<float> all = rows->logits;
  all.insert(all.end(), rows->hidden.begin(), rows->hidden.end());
  all.insert(all.end(), tree->logits.begin(), tree->logits.end());
  all.insert(all.end(), tree->hidden.begin(), tree->hidden.end());
  return all;
}

class RanksModelTest : public testing::TestWithParam<std::tuple<const char*, WeightFormat>> {};

TEST_P(RanksModelTest, LogitsHaveTheSameBitsOnAnyNumberOfRanks) {
  const auto [family, format] = GetParam();
  const TempDirectory dir;
  WriteModel(dir.path(), ConfigOf(family), DType::kBF16, 19);
  LoadOptions options = kFewRows;
  options.weights = format;
  std::vector<float> expected;
  for (const int size : {1, 2, 4, 8}) {
    TestRanks ranks(dir.path(), size, options);
    ASSERT_NE(ranks.leader(), nullptr);
    const std::vector<float> got = PromptAndTree(ranks.leader(), ranks.backend());
    for (const Status& status : ranks.Stop()) EXPECT_TRUE(status.ok()) << status.message();
    if (size == 1) expected = got;
    EXPECT_EQ(got, expected) << size << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(All, RanksModelTest,
                         testing::Combine(testing::Values("llama", "qwen2", "qwen3", "gpt_oss",
                                                          "gpt_oss_mxfp4", "qwen3_moe"),
                                          testing::Values(WeightFormat::kAsStored,
                                                          WeightFormat::kFp8, WeightFormat::kInt8,
                                                          WeightFormat::kInt4)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  WeightFormatName(std::get<1>(info.param));
                         });

// Matrices of the layers as int4 codes, in groups of 32 inputs.
void WriteInt4Model(const std::string& dir) {
  constexpr int64_t kGroup = 32, kCodesPerWord = 8;
  Json json = ConfigOf("llama");
  json["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"format", "pack-quantized"},
      {"config_groups", {{"group_0", {{"weights", {{"num_bits", 4}}}}}}}};
  const ModelConfig config = ParseModelConfig(json, "test").value();
  std::vector<OwnedTensor> tensors;
  for (OwnedTensor& tensor : RandomTensors(config, DType::kBF16, 32)) {
    if (!tensor.name.ends_with("proj.weight")) {
      tensors.push_back(std::move(tensor));
      continue;
    }
    const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
    OwnedTensor scales{.name = tensor.name + "_scale",
                       .dtype = DType::kF32,
                       .shape = {rows, cols / kGroup},
                       .bytes = std::vector<uint8_t>(rows * cols / kGroup * sizeof(float))};
    for (int64_t i = 0; i < rows * cols / kGroup; ++i) {
      StoreElement(scales.bytes.data(), DType::kF32, i, 0.01f * static_cast<float>(1 + i % 7));
    }
    tensor.bytes.resize(rows * cols / 2);  // any bytes are codes
    tensors.push_back({.name = tensor.name + "_packed",
                       .dtype = DType::kI32,
                       .shape = {rows, cols / kCodesPerWord},
                       .bytes = std::move(tensor.bytes)});
    tensors.push_back(std::move(scales));
  }
  ASSERT_TRUE(WriteFile(dir + "/config.json", json.dump()).ok());
  ASSERT_TRUE(WriteTensors(dir + "/model.safetensors", tensors).ok());
}

TEST(RanksTest, CodesOfAFileHaveTheSameBitsOnAnyNumberOfRanks) {
  const TempDirectory dir;
  WriteInt4Model(dir.path());
  std::vector<float> expected;
  for (const int size : {1, 2, 4, 8}) {
    TestRanks ranks(dir.path(), size, kFewRows);
    ASSERT_NE(ranks.leader(), nullptr);
    const std::vector<float> got = PromptAndTree(ranks.leader(), ranks.backend());
    for (const Status& status : ranks.Stop()) EXPECT_TRUE(status.ok()) << status.message();
    if (size == 1) expected = got;
    EXPECT_EQ(got, expected) << size << " ranks";
  }
}

TEST(RanksTest, ReferenceHasTheSameBitsOnTwoRanks) {
  const TempDirectory dir;
  WriteModel(dir.path(), ConfigOf("llama"), DType::kF32, 20);
  std::vector<float> expected;
  for (const int size : {1, 2}) {
    TestRanks ranks(dir.path(), size, kFewRows, [] { return NewReferenceBackend(); });
    const std::vector<float> got = PromptAndTree(ranks.leader(), ranks.backend());
    if (size == 1) expected = got;
    EXPECT_EQ(got, expected);
  }
}

// More rows than one projection takes, with a head's norm and without.
TEST(RanksTest, HeadsShareTheOutputMatrixOfAllRanks) {
  const TempDirectory dir;
  WriteModel(dir.path(), ConfigOf("llama"), DType::kBF16, 29);
  constexpr int kRows = 100;
  const int hidden = 64, vocab = 301;
  std::vector<float> states(kRows * hidden), norm(hidden);
  for (size_t i = 0; i < states.size(); ++i) states[i] = std::sin(static_cast<float>(i) * 0.37f);
  for (size_t i = 0; i < norm.size(); ++i) norm[i] = 1 + std::cos(static_cast<float>(i)) / 4;
  for (const bool normed : {false, true}) {
    std::vector<float> expected;
    for (const int size : {1, 2, 4}) {
      TestRanks ranks(dir.path(), size, kFewRows);
      Backend* backend = ranks.backend();
      const auto on_device = [&](const std::vector<float>& values) {
        Buffer buffer = backend->Allocate(values.size() * sizeof(float)).value();
        backend->CopyIn(buffer.data(), values.data(), buffer.bytes());
        return buffer;
      };
      std::vector<float> logits(kRows * vocab);
      const Buffer rows = on_device(states), weights = on_device(norm), out = on_device(logits);
      ranks.leader()->Project({{static_cast<float*>(rows.data()), kRows, hidden, hidden},
                               normed ? Floats(weights) : nullptr,
                               1e-5f},
                              {static_cast<float*>(out.data()), kRows, vocab, vocab});
      backend->CopyOut(logits.data(), out.data(), out.bytes());
      for (const Status& status : ranks.Stop()) EXPECT_TRUE(status.ok()) << status.message();
      if (size == 1) expected = logits;
      EXPECT_EQ(logits, expected) << size << " ranks";
    }
  }
}

TEST(RanksTest, ARankHoldsItsShareOfTheMatrices) {
  const TempDirectory dir;
  WriteModel(dir.path(), ConfigOf("llama"), DType::kBF16, 21);
  TestRanks alone(dir.path(), 1, kFewRows, NewHostBackend);
  TestRanks ranks(dir.path(), 4, kFewRows, NewHostBackend);
  const double whole = static_cast<double>(alone.leader()->weight_bytes_per_pass());
  for (int rank = 0; rank < 4; ++rank) {
    const double share = static_cast<double>(ranks.decoder(rank)->weight_bytes_per_pass()) / whole;
    EXPECT_NEAR(share, 0.25, 0.05) << "rank " << rank;
  }
  EXPECT_EQ(ranks.leader()->kv_heads(), 2);
}

TEST(RanksTest, RanksTellWhatTheyHaveAllocatedAndFreeIt) {
  const TempDirectory dir;
  Json json = ConfigOf("llama");
  json["intermediate_size"] = 512;  // four ranks share it evenly
  WriteModel(dir.path(), json, DType::kF32, 30);
  TestRanks ranks(dir.path(), 4, kFewRows, NewHostBackend);
  const ModelConfig& config = ranks.leader()->config();
  const auto reckoned = ReckonRankMemory(config, 4, WeightFormat::kAsStored, DType::kF32);
  ASSERT_TRUE(reckoned.ok()) << reckoned.status().message();
  {
    auto sequence =
        SingleSequence::Create(ranks.leader(), ranks.backend(), {.max_tokens = 64, .max_tree = 8});
    ASSERT_TRUE(sequence->Append(std::vector<int32_t>{1, 2, 3}).ok());
    const auto others = ranks.leader()->leader()->MemoryOfOthers();
    ASSERT_EQ(others.size(), 3u);
    for (const RankBytes& other : others) {
      EXPECT_NEAR(static_cast<double>(other.weights), static_cast<double>(reckoned->weight_bytes),
                  0.02 * static_cast<double>(reckoned->weight_bytes));
      EXPECT_EQ(other.kv, (64 + 8) * reckoned->kv_bytes_per_token);
    }
  }
  for (const RankBytes& other : ranks.leader()->leader()->MemoryOfOthers()) EXPECT_EQ(other.kv, 0);
}

// 70B in bf16 by its published number of parameters, of which the embedding table is on each rank.
TEST(RanksTest, MemoryIsReckonedFromTheShape) {
  const ModelConfig config = ShapeByName("llama-70b").value();
  const double table = 2.0 * 128256 * 8192;
  for (const int size : {1, 2, 4, 8}) {
    const auto memory = ReckonRankMemory(config, size, WeightFormat::kAsStored, DType::kBF16);
    EXPECT_NEAR(static_cast<double>(memory->weight_bytes), (2 * 70.554e9 - table) / size + table,
                0.001 * 2 * 70.554e9 / size);
    EXPECT_EQ(memory->kv_bytes_per_token, 2 * 2 * 80 * 8 * 128 / size);
    const auto small = ReckonRankMemory(ShapeByName("llama-70b-small").value(), size,
                                        WeightFormat::kAsStored, DType::kBF16);
    EXPECT_NEAR(512.0 * static_cast<double>(small->weight_bytes),
                static_cast<double>(memory->weight_bytes),
                0.003 * static_cast<double>(memory->weight_bytes));  // norms
  }
}

TEST(RanksTest, ModelsThatCannotBeCutAreRefused) {
  const TempDirectory dir;
  WriteModel(dir.path(), SmallConfig(), DType::kF32, 22);  // 2 kv heads
  const auto config = LoadModelConfig(dir.path());
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(ShardOf(*config, 0, 2).ok());
  for (const int size : {0, 3, 4, 16}) {
    EXPECT_EQ(ShardOf(*config, 0, size).status().code(), StatusCode::kInvalidArgument) << size;
  }
}

TEST(RanksTest, ALostRankFailsThePassAndIsNamed) {
  const TempDirectory dir;
  WriteModel(dir.path(), ConfigOf("llama"), DType::kF32, 23);
  const auto ranks = LocalRanks::Create(2);
  ranks[0]->SetDeadline(0.05);
  const auto backend = NewCpuBackend(1, false);
  LoadOptions options = kFewRows;
  options.ranks = ranks[0].get();
  auto decoder = Decoder::Load(dir.path(), backend.get(), options);
  ASSERT_TRUE(decoder.ok());
  auto sequence = SingleSequence::Create(decoder->get(), backend.get(), {.max_tokens = 64});
  ASSERT_TRUE(sequence.ok());
  const std::vector<int32_t> tokens = {1, 2, 3};
  const Status lost = Contain([&] { (void)sequence->Append(tokens); });
  EXPECT_EQ(lost.code(), StatusCode::kUnavailable);
  EXPECT_NE(std::string(lost.message()).find("rank 1"), std::string::npos) << lost.message();
  const Status again = Contain([&] { (void)sequence->Append(tokens); });
  EXPECT_EQ(again.code(), StatusCode::kUnavailable);
}

// A follower whose weights are others than the leader's.
TEST(RanksTest, ARankThatComputesSomethingElseFailsThePassAndIsNamed) {
  const TempDirectory dir, other;
  WriteModel(dir.path(), ConfigOf("llama"), DType::kF32, 24);
  WriteModel(other.path(), ConfigOf("llama"), DType::kF32, 25);
  const auto ranks = LocalRanks::Create(2);
  const auto backends = std::array{NewCpuBackend(1, false), NewCpuBackend(1, false)};
  std::array<std::unique_ptr<Decoder>, 2> decoders;
  for (int rank = 0; rank < 2; ++rank) {
    LoadOptions options = kFewRows;
    options.ranks = ranks[rank].get();
    auto decoder =
        Decoder::Load(rank == 0 ? dir.path() : other.path(), backends[rank].get(), options);
    ASSERT_TRUE(decoder.ok());
    decoders[rank] = std::move(decoder).value();
  }
  std::thread follower(
      [&] { (void)RankFollower(ranks[1].get(), decoders[1].get(), backends[1].get()).Run(); });
  auto sequence = SingleSequence::Create(decoders[0].get(), backends[0].get(), {.max_tokens = 64});
  ASSERT_TRUE(sequence.ok());
  const Status status = Contain([&] { (void)sequence->Append(std::vector<int32_t>{1, 2, 3}); });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("rank 1"), std::string::npos) << status.message();
  const MessageHeader stop{.command = RankCommand::kStop};
  ranks[0]->Send(1, {reinterpret_cast<const uint8_t*>(&stop), sizeof(stop)});
  follower.join();
}

TEST(RanksTest, AfterAPassThatWasBrokenOffNothingIsSent) {
  const auto ranks = LocalRanks::Create(2);
  const auto backend = NewCpuBackend(1, false);
  RankLeader leader(ranks[0].get(), backend->kv_ops());
  { const auto turn = leader.BeginPass({}, {}); }  // without EndPass
  EXPECT_EQ(Contain([&] { (void)leader.BeginPass({}, {}); }).code(), StatusCode::kUnavailable);
  EXPECT_EQ(Contain([&] { leader.CopyBlock({}, 0, 1, 1); }).code(), StatusCode::kUnavailable);
}

TEST(RanksTest, AnIdleLeaderNoticesThatARankIsGone) {
  const TempDirectory dir;
  WriteModel(dir.path(), ConfigOf("llama"), DType::kF32, 26);
  const auto ranks = LocalRanks::Create(2);
  ranks[0]->SetDeadline(0.02);
  const auto backend = NewCpuBackend(1, false);
  std::promise<std::string> lost;
  RankLeader leader(ranks[0].get(), backend->kv_ops());
  leader.StartPings(0.01, [&](const std::string& reason) { lost.set_value(reason); });
  EXPECT_NE(lost.get_future().get().find("rank 1"), std::string::npos);
}

// A device that shares the inputs of a product has some of its outputs, and all inputs of them.
TEST(RanksTest, ARankTakesOutputsWhereInputsAreShared) {
  const TempDirectory dir;
  WriteModel(dir.path(), ConfigOf("llama"), DType::kBF16, 31);
  const ModelConfig config = LoadModelConfig(dir.path()).value();
  const ModelShard shard = ShardOf(config, 1, 2, RankSplit::kOutputs).value();
  TensorLayout layout = LayoutOf(config, ExpertTensors::kStacked);
  const std::vector<int> segments = layout.layers[0].mlp.down_bounds;
  TakeShard(config, shard, &layout);
  const LayerLayout& layer = layout.layers[0];
  for (const TensorSpec* spec : {&layer.output[0], &layer.mlp.down[0]}) {
    EXPECT_EQ(spec->only_rows, (IndexRange{32, 64}));
    EXPECT_FALSE(spec->only_cols.has_value());
  }
  EXPECT_EQ(layer.output_bounds, (std::vector<int>{0, 128, 256}));
  EXPECT_EQ(layer.mlp.down_bounds, (std::vector<int>{0, segments[4], 320}));
  EXPECT_EQ(layer.mlp.gate_up[0].only_rows, (IndexRange{segments[4], 320}));
  EXPECT_EQ(layer.qkv[0].only_rows, (IndexRange{128, 256}));
}

// One sequence with its whole prefix, one with a partial view.
TEST(RanksTest, ARankTakesTheListsOfItsKvHeads) {
  ModelConfig config;
  config.num_layers = 2;
  config.num_kv_heads = 4;
  PassPlan plan;
  plan.tokens = {7, 8};
  plan.sequence_rows = {0, 1, 2};
  plan.block_ids = {90, 91, 92};
  plan.block_offsets = {0, 3};
  plan.sequence_lists = {0, 1, 9};
  for (int list = 0; list < 8; ++list) {
    plan.block_ids.insert(plan.block_ids.end(), {10 * list, 10 * list + 1});
    plan.block_offsets.push_back(static_cast<int32_t>(plan.block_ids.size()));
  }
  ASSERT_TRUE(plan.HasPartialViews());
  PassPlan own;
  TakeLists(config, {.rank = 1, .size = 2, .kv_heads = {2, 4}}, plan, &own);
  EXPECT_EQ(own.tokens, plan.tokens);
  EXPECT_EQ(own.sequence_lists, (std::vector<int32_t>{0, 1, 5}));
  EXPECT_EQ(own.block_offsets, (std::vector<int32_t>{0, 3, 5, 7, 9, 11}));
  EXPECT_EQ(own.block_ids, (std::vector<int32_t>{90, 91, 92, 20, 21, 30, 31, 60, 61, 70, 71}));
  own.sequence_lists = {0, 1, 2};
  EXPECT_FALSE(own.HasPartialViews());
}

TEST(RanksTest, PlansTravelAsTheyAre) {
  PassPlan plan;
  plan.tokens = {1, 2};
  plan.ancestors = {3, ~uint64_t{0}};
  plan.mask_words = 2;
  plan.scores = {{.sequence = 1, .num_blocks = 4, .reduce = ScoreReduce::kMax}};
  plan.output_rows = {1};
  MessageWriter writer;
  PutPlan(plan, &writer);
  MessageReader reader(writer.bytes());
  const PassPlan got = GetPlan(&reader);
  EXPECT_EQ(got.tokens, plan.tokens);
  EXPECT_EQ(got.ancestors, plan.ancestors);
  EXPECT_EQ(got.mask_words, 2);
  EXPECT_EQ(got.output_rows, plan.output_rows);
  ASSERT_EQ(got.scores.size(), 1u);
  EXPECT_EQ(got.scores[0].num_blocks, 4);
  EXPECT_EQ(got.scores[0].reduce, ScoreReduce::kMax);
  EXPECT_TRUE(got.slots.empty());
}

}  // namespace
}  // namespace talon
