#include "compute/cpu/attention/block_scores.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/math.h"
#include "compute/cpu/attention/block_kernels.h"
#include "compute/cpu/attention/kernels.h"
#include "compute/cpu/attention/kv_kernels.h"
#include "compute/cpu/matmul/quantize.h"
#include "compute/host/host_memory.h"

namespace talon {
namespace {

template <typename T>
auto* At(T* array, int64_t element, DType dtype) {
  using Byte = std::conditional_t<std::is_const_v<T>, const uint8_t, uint8_t>;
  return static_cast<Byte*>(array) + element * static_cast<int64_t>(DTypeSize(dtype));
}

// Index of one (block, kv head) in a summary array.
int64_t SummaryIndex(const KvShape& shape, int32_t block, int head) {
  return int64_t{block} * shape.kv_heads + head;
}

void SummariseBlock(const KvShape& shape, const KvLayer& arrays, int32_t block) {
  const int dim = shape.head_dim;
  std::vector<float> keys(shape.TileElements());
  std::vector<uint8_t> vectors(keys.size() * DTypeSize(shape.value_type()));
  std::vector<float> largest(dim);
  std::vector<float> smallest(dim);
  for (int head = 0; head < shape.kv_heads; ++head) {
    const int64_t summary = SummaryIndex(shape, block, head);
    const int64_t slot = int64_t{block} * shape.block_size;
    ReadTokens(shape, KvSide::kKeys, VectorAt(shape, arrays.k_blocks, nullptr, slot, head),
               shape.block_size, vectors.data());
    ConvertToF32(vectors.data(), shape.value_type(), static_cast<int64_t>(keys.size()),
                 keys.data());
    arrays.key_norm[summary] =
        SummariseKeys(keys.data(), shape.block_size, dim, largest.data(), smallest.data());
    ConvertFromF32(largest.data(), dim, shape.value_type(),
                   At(arrays.key_max, summary * dim, shape.value_type()));
    ConvertFromF32(smallest.data(), dim, shape.value_type(),
                   At(arrays.key_min, summary * dim, shape.value_type()));
  }
}

// A tile of blocks of one request, at one kv head.
struct ScoreTask {
  const ScoreRequest* request = nullptr;
  int kv_head = 0;
  int first_block = 0;
  int num_blocks = 0;  // at most kTileKeys
};

std::vector<ScoreTask> TasksOf(const ScoreCall& call) {
  std::vector<ScoreTask> tasks;
  for (const ScoreRequest& request : call.pass->scores) {
    if (request.scorer == BlockScorer::kAttention) continue;
    for (int head = 0; head < call.shape.kv_heads; ++head) {
      for (int first = 0; first < request.num_blocks; first += kTileKeys) {
        tasks.push_back({&request, head, first, std::min(kTileKeys, request.num_blocks - first)});
      }
    }
  }
  return tasks;
}

// Scores a task's blocks with the products of attention, a block's summary standing for a key.
class TileScorer {
 public:
  TileScorer(const ScoreCall& call, const ScoreTask& task, FloatArena* arena)
      : call_(call),
        task_(task),
        kernels_(PortableAttentionKernels(call.shape.value_type())),  // they compute in float32
        dim_(PaddedDim(call.shape.head_dim)),
        bound_(task.request->scorer == BlockScorer::kQuestBound) {
    arena->Clear();
    gathered_ = arena->Take(kTileKeys * dim_);
    for (float*& packed : packed_) packed = arena->Take(kTileKeys * dim_);
    for (float*& queries : queries_) queries = arena->Take(kMaxTileRows * dim_);
    for (float*& products : products_) products = arena->Take(kMaxTileRows * kTileKeys);
    totals_ = arena->Take(static_cast<size_t>(call.group()) * kTileKeys);
  }

  static size_t Floats(int dim, int group) {
    return 3 * FloatArena::Rounded(static_cast<size_t>(kTileKeys) * dim) +
           2 * FloatArena::Rounded(static_cast<size_t>(kMaxTileRows) * dim) +
           2 * FloatArena::Rounded(kMaxTileRows * kTileKeys) +
           FloatArena::Rounded(static_cast<size_t>(group) * kTileKeys);
  }

  void Run() {
    Pack(call_.layer.key_max, packed_[0]);
    Pack(call_.layer.key_min, packed_[1]);
    const int group = call_.group();
    const bool largest = task_.request->reduce == ScoreReduce::kMax;
    std::fill_n(totals_, group * kTileKeys, largest ? -HUGE_VALF : 0.0f);
    const int queries = (task_.request->row_end - task_.request->row_begin) * group;
    for (int first = 0; first < queries; first += kMaxTileRows) {
      const int count = std::min(kMaxTileRows, queries - first);
      LoadQueries(first, count);
      Multiply(count);
      for (int i = 0; i < count; ++i) AddQuery(i, (first + i) % group);
    }
    WriteScores();
  }

 private:
  int NumUnits() const { return CeilDiv(task_.num_blocks, kUnitKeys); }

  void Pack(const void* summaries, float* packed) {
    const int head_dim = call_.shape.head_dim;
    const size_t bytes = head_dim * DTypeSize(call_.shape.value_type());
    const auto blocks = call_.pass->BlocksOf(task_.request->sequence, call_.layer_index,
                                             task_.kv_head, call_.shape.kv_heads);
    auto* out = reinterpret_cast<uint8_t*>(gathered_);
    KvTile tile{.num_units = NumUnits(), .head_dim = head_dim};
    for (int u = 0; u < tile.num_units; ++u) tile.units[u] = out + u * kUnitKeys * bytes;
    for (int i = 0; i < task_.num_blocks; ++i, out += bytes) {
      const int64_t summary =
          SummaryIndex(call_.shape, blocks[task_.first_block + i], task_.kv_head);
      std::memcpy(out, At(summaries, summary * head_dim, call_.shape.value_type()), bytes);
    }
    std::memset(out, 0, (tile.num_units * kUnitKeys - task_.num_blocks) * bytes);
    kernels_.pack_keys(tile, packed);
  }

  // The bound takes each element of a query to the side of the summary that makes it larger.
  void LoadQueries(int first, int count) {
    const int head_dim = call_.shape.head_dim;
    const int group = call_.group();
    for (int i = 0; i < count; ++i) {
      const int row = task_.request->row_begin + (first + i) / group;
      const int head = task_.kv_head * group + (first + i) % group;
      const float* q = call_.q.data + row * call_.q.stride + int64_t{head} * head_dim;
      float* positive = queries_[0] + i * dim_;
      kernels_.pack_query(q, head_dim, 1.0f, positive);
      if (!bound_) continue;
      float* negative = queries_[1] + i * dim_;
      for (int d = 0; d < dim_; ++d) {
        const float value = positive[d];
        positive[d] = value < 0 ? 0.0f : value;
        negative[d] = value < 0 ? value : 0.0f;
      }
    }
  }

  // quest: both products side by side; quest_bound: one on top of the other.
  void Multiply(int count) {
    TileProduct product{.a = queries_[0],
                        .a_stride = dim_,
                        .b = packed_[0],
                        .b_cols = kTileKeys,
                        .rows = count,
                        .depth = dim_,
                        .cols = NumUnits() * kUnitKeys,
                        .out = products_[0],
                        .out_stride = kTileKeys};
    kernels_.multiply(product);
    product.b = packed_[1];
    if (bound_) {
      std::fill_n(ones_, count, 1.0f);
      product.a = queries_[1];
      product.rescale = ones_;
    } else {
      product.out = products_[1];
    }
    kernels_.multiply(product);
  }

  void AddQuery(int query, int head) {
    AddScoreRow({.a = products_[0] + query * kTileKeys,
                 .b = bound_ ? nullptr : products_[1] + query * kTileKeys,
                 .count = task_.num_blocks,
                 .total = totals_ + head * kTileKeys},
                task_.request->reduce);
  }

  void WriteScores() const {
    const ScoreRequest& request = *task_.request;
    const int group = call_.group();
    const int rows = request.reduce == ScoreReduce::kMax ? 1 : request.row_end - request.row_begin;
    const float factor = 1.0f / static_cast<float>(rows * group);
    float* out = call_.out.data + task_.kv_head * call_.out.stride + request.first_column +
                 task_.first_block;
    for (int i = 0; i < task_.num_blocks; ++i) {
      float sum = 0;
      for (int head = 0; head < group; ++head) sum += totals_[head * kTileKeys + i];
      out[i] = std::isnan(sum) ? -HUGE_VALF : sum * factor;
    }
  }

  const ScoreCall& call_;
  const ScoreTask& task_;
  const AttentionKernels& kernels_;
  const int dim_;
  const bool bound_;
  float* gathered_;     // summaries of the tile, in the cache's type
  float* packed_[2];    // the largest and the smallest keys
  float* queries_[2];   // [queries, dim]; the bound's positive and negative parts
  float* products_[2];  // [queries, 128]
  float* totals_;       // [group, 128], over rows
  float ones_[kMaxTileRows];
};

void CopyNorms(const ScoreCall& call, const ScoreTask& task) {
  const auto blocks = call.pass->BlocksOf(task.request->sequence, call.layer_index, task.kv_head,
                                          call.shape.kv_heads);
  float* out = call.out.data + task.kv_head * call.out.stride + task.request->first_column +
               task.first_block;
  for (int i = 0; i < task.num_blocks; ++i) {
    const float norm =
        call.layer.key_norm[SummaryIndex(call.shape, blocks[task.first_block + i], task.kv_head)];
    out[i] = std::isnan(norm) ? -HUGE_VALF : norm;
  }
}

}  // namespace

void SummariseBlocks(ThreadPool& pool, const KvView& kv, std::span<const int32_t> blocks) {
  const auto count = static_cast<int64_t>(blocks.size());
  pool.Run(count * kv.shape.num_layers, [&](int64_t task, int /*thread*/) {
    SummariseBlock(kv.shape, kv.layers[task / count], blocks[task % count]);
  });
}

void ScoreScratch::Reserve(int num_threads, const ScoreCall& call) {
  threads_.resize(std::max(threads_.size(), static_cast<size_t>(num_threads)));
  const int dim = PaddedDim(call.shape.head_dim);
  for (FloatArena& arena : threads_) arena.Reserve(TileScorer::Floats(dim, call.group()));
}

void ScoreBlocks(ThreadPool& pool, const ScoreCall& call, ScoreScratch* scratch) {
  scratch->Reserve(pool.num_threads(), call);
  const std::vector<ScoreTask> tasks = TasksOf(call);
  pool.Run(static_cast<int64_t>(tasks.size()), [&](int64_t index, int thread) {
    const ScoreTask& task = tasks[index];
    if (task.request->scorer == BlockScorer::kH2o) {
      CopyNorms(call, task);
    } else {
      TileScorer(call, task, &scratch->thread(thread)).Run();
    }
  });
}

}  // namespace talon
