// Random batches (random_batch.h) on a GPU: attention of every row against a plain kernel, and the
// bits of some sequences against those they have alone. In a pool larger than 2^31 elements, all
// memory that no row may read poisoned with NaN.
// Cases: TALON_FUZZ_CASES (default 100 a shape and mode), the first seed: TALON_FUZZ_SEED.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "compute/cuda/cuda_backend.h"
#include "compute/cuda/testing/naive_attention.h"
#include "kv/kv_cache.h"
#include "random_batch.h"
#include "spec/plan.h"

namespace talon {
namespace {

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

constexpr int kLayer = 1;

class PassFuzz {
 public:
  explicit PassFuzz(const FuzzShape& shape) : shape_(shape) {
    backend_ = NewCudaBackend({}).value();
    const int64_t block = int64_t{shape.kv_heads} * shape.head_dim * shape.block_size;
    const KvShape kv{.num_layers = kLayers,
                     .kv_heads = shape.kv_heads,
                     .head_dim = shape.head_dim,
                     .block_size = shape.block_size,
                     .dtype = shape.dtype,
                     .num_blocks = static_cast<int>(shape.pool_elements / block),
                     .staging_rows = kMaxRows};
    kv_ = KvCache::Create(backend_.get(), kv, &metrics_,
                          {.tail_regions = kTailRegions, .tail_rows = kTailRows})
              .value();
    pass_ = backend_->NewPass(shape.heads());
    matrices_ =
        backend_
            ->Allocate(sizeof(float) * kMaxRows * (2 * qkv_cols() + shape.cols() + shape.head_dim))
            .value();
    no_rotation_ = backend_->Allocate(sizeof(float) * shape.head_dim).value();  // zeros
    qkv_identity_ = Identity(qkv_cols());
    out_identity_ = Identity(shape.cols());
    batch_ = std::make_unique<RandomBatch>(shape, kv_.get());
  }

  // One batch of this seed. Returns what differs, or nothing.
  std::string Run(uint64_t seed) {
    batch_->Compose(seed);
    FillCache(seed);
    const MatrixView x = Matrix(0, qkv_cols());
    cuda::FillRandom(x.Cols(0, shape_.cols()), seed * 2 + 1, kQueryDeviation);
    cuda::FillRandom(x.Cols(shape_.cols(), 2 * kv_cols()), seed * 2 + 2, 1);
    // The first runs of a shape are direct, at most four, then a graph is captured and replayed.
    const int runs = batch_->Random() % 2 == 0 ? 1 : 6;
    for (int i = 0; i < runs; ++i) RunPass(batch_->plan(), 0);
    std::string difference = Compare();
    if (difference.empty()) difference = CompareAlone();
    batch_->FreeAll();
    return difference.empty() ? ""
                              : fmt::format("seed {}: {}; {}", seed, difference, batch_->text());
  }

 private:
  static constexpr float kQueryDeviation = 2;  // softmax weights that differ by magnitudes

  int kv_cols() const { return shape_.kv_heads * shape_.head_dim; }
  int qkv_cols() const { return shape_.cols() + 2 * kv_cols(); }
  float scale() const { return 1 / std::sqrt(static_cast<float>(shape_.head_dim)); }
  MatrixView Matrix(int first_col, int cols) const {
    return {static_cast<float*>(matrices_.data()) + int64_t{first_col} * kMaxRows,
            batch_->num_rows(), cols, cols};
  }

  std::unique_ptr<Weight> Identity(int size) {
    std::vector<float> values(static_cast<size_t>(size) * size);
    for (int i = 0; i < size; ++i) values[int64_t{i} * size + i] = 1;
    const HostMatrix matrix{values.data(), DType::kF32, size, size};
    return backend_->PackWeight({&matrix, 1}, WeightFormat::kBF16).value();
  }

  QkvRows HeadsOf(MatrixView qkv) const {
    return {.q = qkv.Cols(0, shape_.cols()),
            .k = qkv.Cols(shape_.cols(), kv_cols()),
            .v = qkv.Cols(shape_.cols() + kv_cols(), kv_cols())};
  }
  MatrixView Qkv() const { return Matrix(qkv_cols(), qkv_cols()); }
  MatrixView Out() const { return Matrix(2 * qkv_cols(), shape_.cols()); }

  // Rows from `first` on of the batch's inputs and outputs.
  void RunPass(const PassPlan& plan, int first) {
    const auto rows_of = [&](MatrixView all) { return all.Rows(first, plan.num_rows()); };
    const MatrixView x = rows_of(Matrix(0, qkv_cols())), qkv = rows_of(Qkv()), out = rows_of(Out());
    const MatrixView angles = rows_of(Matrix(2 * qkv_cols() + shape_.cols(), shape_.head_dim));
    const QkvRows rows = HeadsOf(qkv);
    backend_->LoadPass(plan, kv_->shape(), pass_.get());
    cuda::FillRandom(out, 0, 0);
    backend_->Record(pass_.get(), nullptr, /*key=*/static_cast<uint64_t>(first), [&] {
      backend_->RopeAngles(*pass_, static_cast<const float*>(no_rotation_.data()),
                           shape_.head_dim / 2, 1, angles);
      backend_->ProjectQkv(*pass_, {.x = x, .w = qkv_identity_.get(), .out = qkv}, rows, angles,
                           kv_->view(), kLayer);
      backend_->AttentionMatMul(*pass_,
                                {.q = rows.q, .kv = kv_->view(), .layer = kLayer, .scale = scale()},
                                *out_identity_, nullptr, out);
    });
    backend_->Synchronize();
  }

  // ---- The cache ----

  // Committed tokens and tails hold values, everything else NaN; the pass writes its own rows.
  void FillCache(uint64_t seed) {
    const KvShape& shape = kv_->shape();
    const KvLayer& layer = kv_->view().layers[kLayer];
    const size_t blocks = shape.BlockBytes() * shape.num_blocks;
    const size_t staged = shape.RowBytes() * shape.staging_rows;
    for (void* array : {layer.k_blocks, layer.v_blocks}) cuda::Poison(array, blocks);
    for (void* array : {layer.k_staged, layer.v_staged}) cuda::Poison(array, staged);
    std::vector<int32_t> places;
    for (const Sequence& sequence : batch_->sequences()) {
      for (int t = 0; t < sequence.committed_len; ++t) {
        places.push_back(sequence.blocks[t / shape.block_size] * shape.block_size +
                         t % shape.block_size);
      }
      for (int t = 0; t < sequence.tail_len; ++t) places.push_back(~(sequence.tail_first + t));
    }
    std::ranges::sort(places);
    places.erase(std::unique(places.begin(), places.end()), places.end());
    cuda::FillPlaces(shape, layer, places, seed);
  }

  // ---- The check ----

  // The places of all keys, from the PassPlan alone.
  cuda::NaiveAttention Expected(MatrixView q) const {
    const PassPlan& plan = batch_->plan();
    cuda::NaiveAttention naive{
        .shape = kv_->shape(), .layer = kv_->view().layers[kLayer], .q = q, .scale = scale()};
    naive.keys.resize(static_cast<size_t>(plan.num_rows()) * shape_.kv_heads);
    for (int s = 0; s < plan.num_sequences(); ++s) {
      for (int head = 0; head < shape_.kv_heads; ++head) {
        const auto list_begin = static_cast<int64_t>(naive.places.size());
        for (const int32_t block : plan.BlocksOf(s, kLayer, head, shape_.kv_heads)) {
          for (int i = 0; i < shape_.block_size; ++i) {
            naive.places.push_back(block * shape_.block_size + i);
          }
        }
        for (int row = plan.sequence_rows[s]; row < plan.sequence_rows[s + 1]; ++row) {
          cuda::NaiveKeys& keys = naive.keys[row * shape_.kv_heads + head];
          keys = {.list_begin = list_begin,
                  .prefix_len = plan.prefix_len[row],
                  .nodes_begin = static_cast<int64_t>(naive.places.size())};
          for (int node = 0; node < 64 * plan.mask_words; ++node) {
            const uint64_t word = plan.ancestors[row * plan.mask_words + node / 64];
            if ((word >> (node % 64) & 1) == 0) continue;
            naive.places.push_back(plan.PlaceOf(s, node));
            ++keys.num_nodes;
          }
        }
      }
    }
    return naive;
  }

  std::string NodesOf(int row) const {
    const PassPlan& plan = batch_->plan();
    int s = 0;
    while (plan.sequence_rows[s + 1] <= row) ++s;
    return fmt::format("sequence {} of {} rows after {} nodes, {} lists", s,
                       plan.sequence_rows[s + 1] - plan.sequence_rows[s], plan.nodes_before[s],
                       plan.NumLists(s));
  }

  std::vector<float> Read(MatrixView matrix) const {
    std::vector<float> values(static_cast<size_t>(matrix.rows) * matrix.cols);
    backend_->CopyOut(values.data(), matrix.data, values.size() * sizeof(float));
    return values;
  }

  // Weights are rounded to 16 bits and so are queries, so an element differs by a small share of
  // what weighted random values deviate by; results are rounded to 16 bits on their way out.
  std::string Compare() {
    const cuda::NaiveResult expected = cuda::RunNaiveAttention(Expected(HeadsOf(Qkv()).q));
    const std::vector<float> actual = Read(Out());
    for (size_t i = 0; i < actual.size(); ++i) {
      const float spread = expected.spread[i / shape_.head_dim];
      const float bound = 0.06f * spread + std::abs(expected.out[i]) / 128 + 1e-5f;
      const float difference = std::abs(actual[i] - expected.out[i]);
      largest_ = std::max(largest_, difference / bound);
      if (difference <= bound) continue;  // false for NaN
      const auto row = static_cast<int>(i / shape_.cols());
      return fmt::format("row {} (prefix {}, {}) column {}: {} instead of {}, bound {}", row,
                         batch_->plan().prefix_len[row], NodesOf(row), i % shape_.cols(), actual[i],
                         expected.out[i], bound);
    }
    return "";
  }

  // Runs some sequences once more, each by itself: with other kernels, tiles and sections.
  std::string CompareAlone() {
    constexpr int kMost = 4;
    const std::vector<float> expected = Read(Out());
    const PassPlan& plan = batch_->plan();
    for (int i = 0; i < std::min(kMost, plan.num_sequences()); ++i) {
      const int s = batch_->Uniform(0, plan.num_sequences() - 1);
      PassBuilder alone;
      alone.Reset();
      batch_->AddAlone(s, &alone);
      RunPass(alone.plan(), plan.sequence_rows[s]);
      const std::vector<float> actual = Read(Out());
      const int64_t begin = int64_t{plan.sequence_rows[s]} * shape_.cols();
      const int64_t end = int64_t{plan.sequence_rows[s + 1]} * shape_.cols();
      for (int64_t at = begin; at < end; ++at) {
        if (std::bit_cast<uint32_t>(actual[at]) == std::bit_cast<uint32_t>(expected[at])) continue;
        const auto row = static_cast<int>(at / shape_.cols());
        return fmt::format("row {} (prefix {}, {}) column {}: {} alone, {} in the batch", row,
                           plan.prefix_len[row], NodesOf(row), at % shape_.cols(), actual[at],
                           expected[at]);
      }
    }
    return "";
  }

 public:
  float largest() const { return largest_; }  // difference seen, as a share of its bound

 private:
  FuzzShape shape_;
  std::unique_ptr<Backend> backend_;
  Metrics metrics_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Pass> pass_;
  Buffer matrices_;
  Buffer no_rotation_;
  std::unique_ptr<Weight> qkv_identity_, out_identity_;
  std::unique_ptr<RandomBatch> batch_;
  float largest_ = 0;
};

std::vector<FuzzShape> Shapes() {
  return {
      {.pool_elements = (int64_t{1} << 31) + (int64_t{1} << 28)},  // an 8B model's
      {.kv_heads = 4, .group = 7},
      {.kv_heads = 2, .group = 8, .block_size = 32},
      {.kv_heads = 2, .group = 5, .head_dim = 64},
      {.kv_heads = 8, .group = 1, .head_dim = 64, .block_size = 64},
      {.kv_heads = 4, .group = 2, .dtype = DType::kF16},
      {.kv_heads = 1, .group = 3, .head_dim = 96, .block_size = 8},
      {.dtype = DType::kF8E4M3, .pool_elements = (int64_t{1} << 31) + (int64_t{1} << 28)},
      {.kv_heads = 4, .group = 7, .dtype = DType::kI8},
      {.kv_heads = 2, .group = 5, .head_dim = 64, .block_size = 64, .dtype = DType::kI8},
      {.kv_heads = 1, .group = 3, .head_dim = 96, .block_size = 8, .dtype = DType::kF8E4M3},
  };
}

class PassFuzzTest : public ::testing::TestWithParam<FuzzShape> {};

TEST_P(PassFuzzTest, EveryRowOfRandomBatchesMatchesPlainAttention) {
  const int64_t cases = FromEnvironment("TALON_FUZZ_CASES", 100);
  const auto first = static_cast<uint64_t>(FromEnvironment("TALON_FUZZ_SEED", 1));
  PassFuzz fuzz(GetParam());
  for (int64_t i = 0; i < cases; ++i) {
    const std::string difference = fuzz.Run(first + i);
    ASSERT_EQ(difference, "");
  }
  RecordProperty("largest_share_of_bound", fmt::format("{:.2f}", fuzz.largest()));
  fmt::print("{}: {} batches, largest difference {:.2f} of its bound\n", GetParam().Name(), cases,
             fuzz.largest());
}

INSTANTIATE_TEST_SUITE_P(Gpu, PassFuzzTest, ::testing::ValuesIn(Shapes()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace talon
