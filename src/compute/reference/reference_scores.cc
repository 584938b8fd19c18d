#include "compute/reference/reference_scores.h"

#include <algorithm>
#include <cmath>

#include "compute/host/host_memory.h"
#include "compute/reference/reference_kv.h"

namespace talon {
namespace {

double OrLowest(double score) { return std::isnan(score) ? -HUGE_VAL : score; }

double LargerOrNaN(double a, double b) { return a > b || std::isnan(a) ? a : b; }

HostVector KeyAt(const KvShape& shape, const KvLayer& arrays, int32_t block, int token,
                 int kv_head) {
  const int64_t slot = int64_t{block} * shape.block_size + token;
  return VectorAt(shape, arrays.k_blocks, nullptr, slot, kv_head);
}

// Everything about one kv head of a layer.
struct Head {
  const KvShape& shape;
  const KvLayer& arrays;
  std::span<const int32_t> blocks;
  int kv_head;

  int64_t Summary(int32_t block) const { return int64_t{block} * shape.kv_heads + kv_head; }
};

double ScoreSummary(BlockScorer scorer, const float* q, const Head& head, int64_t summary) {
  const KvShape& shape = head.shape;
  double with_max = 0, with_min = 0, bound = 0;
  for (int d = 0; d < shape.head_dim; ++d) {
    const int64_t at = summary * shape.head_dim + d;
    const double a = double{q[d]} * LoadElement(head.arrays.key_max, shape.value_type(), at);
    const double b = double{q[d]} * LoadElement(head.arrays.key_min, shape.value_type(), at);
    with_max += a;
    with_min += b;
    bound += LargerOrNaN(a, b);
  }
  return scorer == BlockScorer::kQuest ? LargerOrNaN(with_max, with_min) : bound;
}

// Sums of e^score over the keys of each block from `first_key` on, divided by their total.
std::vector<double> AttentionMasses(const float* q, const Head& head, double scale, int first_key) {
  const KvShape& shape = head.shape;
  std::vector<double> masses;
  double total = 0;
  int index = 0;
  for (const int32_t block : head.blocks) {
    double mass = 0;
    for (int key = 0; key < shape.block_size; ++key) {
      if (index++ < first_key) continue;
      const HostVector vector = KeyAt(shape, head.arrays, block, key, head.kv_head);
      double product = 0;
      for (int d = 0; d < shape.head_dim; ++d) {
        product += double{q[d]} * ReferenceLoad(shape, vector, d);
      }
      mass += std::exp(product * scale);
    }
    masses.push_back(mass);
    total += mass;
  }
  for (double& mass : masses) mass = total == 0 ? 0 : mass / total;
  return masses;
}

std::vector<double> ScoreSummaries(BlockScorer scorer, const float* q, const Head& head) {
  std::vector<double> scores;
  for (const int32_t block : head.blocks) {
    scores.push_back(ScoreSummary(scorer, q, head, head.Summary(block)));
  }
  return scores;
}

}  // namespace

void ReferenceSummary(const KvShape& shape, const KvLayer& arrays, int32_t block, int kv_head) {
  const int64_t index = int64_t{block} * shape.kv_heads + kv_head;
  const auto key = [&](int token, int d) {
    return ReferenceLoad(shape, KeyAt(shape, arrays, block, token, kv_head), d);
  };
  for (int d = 0; d < shape.head_dim; ++d) {
    float largest = key(0, d), smallest = largest;
    for (int token = 1; token < shape.block_size; ++token) {
      const float value = key(token, d);
      if (value > largest || std::isnan(value)) largest = value;
      if (value < smallest || std::isnan(value)) smallest = value;
    }
    StoreElement(arrays.key_max, shape.value_type(), index * shape.head_dim + d, largest);
    StoreElement(arrays.key_min, shape.value_type(), index * shape.head_dim + d, smallest);
  }
  double norms = 0;
  for (int token = 0; token < shape.block_size; ++token) {
    double squares = 0;
    for (int d = 0; d < shape.head_dim; ++d) squares += double{key(token, d)} * key(token, d);
    norms += std::sqrt(squares);
  }
  arrays.key_norm[index] = static_cast<float>(norms / shape.block_size);
}

std::vector<double> ReferenceScores(const ScoreRequest& request, const MatrixView& q,
                                    const KvShape& shape, const KvLayer& arrays,
                                    std::span<const int32_t> blocks, int kv_head,
                                    const ReferenceSight& sight) {
  const Head head{shape, arrays, blocks, kv_head};
  std::vector<double> total(blocks.size());
  if (request.scorer == BlockScorer::kH2o) {
    for (size_t b = 0; b < blocks.size(); ++b) {
      total[b] = OrLowest(arrays.key_norm[head.Summary(blocks[b])]);
    }
    return total;
  }
  const int group = q.cols / shape.head_dim / shape.kv_heads;
  const int rows = request.row_end - request.row_begin;
  for (int h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    std::vector<double> sum(blocks.size()), largest(blocks.size(), -HUGE_VAL);
    for (int row = request.row_begin; row < request.row_end; ++row) {
      const float* query = q.data + row * q.stride + int64_t{h} * shape.head_dim;
      const std::vector<double> scores =
          request.scorer == BlockScorer::kAttention
              ? AttentionMasses(query, head, sight.scale, sight.first_key[row])
              : ScoreSummaries(request.scorer, query, head);
      for (size_t b = 0; b < blocks.size(); ++b) {
        sum[b] += OrLowest(scores[b]);
        largest[b] = std::max(largest[b], OrLowest(scores[b]));
      }
    }
    for (size_t b = 0; b < blocks.size(); ++b) {
      total[b] += (request.reduce == ScoreReduce::kMax ? largest[b] : sum[b] / rows) / group;
    }
  }
  return total;
}

}  // namespace talon
