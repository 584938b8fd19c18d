#include "compute/reference/reference_scores.h"

#include <algorithm>
#include <cmath>

#include "compute/host/host_memory.h"

namespace talon {
namespace {

double OrLowest(double score) { return std::isnan(score) ? -HUGE_VAL : score; }

double LargerOrNaN(double a, double b) { return a > b || std::isnan(a) ? a : b; }

// One query head and row against the summary that starts at `summary`.
double ScoreQuery(BlockScorer scorer, const float* q, const KvShape& shape, const KvLayer& arrays,
                  int64_t summary) {
  double with_max = 0, with_min = 0, bound = 0;
  for (int d = 0; d < shape.head_dim; ++d) {
    const double a = double{q[d]} * LoadElement(arrays.key_max, shape.dtype, summary + d);
    const double b = double{q[d]} * LoadElement(arrays.key_min, shape.dtype, summary + d);
    with_max += a;
    with_min += b;
    bound += LargerOrNaN(a, b);
  }
  return OrLowest(scorer == BlockScorer::kQuest ? LargerOrNaN(with_max, with_min) : bound);
}

}  // namespace

void ReferenceSummary(const KvShape& shape, const KvLayer& arrays, int32_t block, int kv_head) {
  const int64_t index = int64_t{block} * shape.kv_heads + kv_head;
  const int64_t tile = SlotOffset(shape, int64_t{block} * shape.block_size, kv_head);
  const auto key = [&](int token, int d) {
    return LoadElement(arrays.k_blocks, shape.dtype, tile + int64_t{token} * shape.head_dim + d);
  };
  for (int d = 0; d < shape.head_dim; ++d) {
    float largest = key(0, d), smallest = largest;
    for (int token = 1; token < shape.block_size; ++token) {
      const float value = key(token, d);
      if (value > largest || std::isnan(value)) largest = value;
      if (value < smallest || std::isnan(value)) smallest = value;
    }
    StoreElement(arrays.key_max, shape.dtype, index * shape.head_dim + d, largest);
    StoreElement(arrays.key_min, shape.dtype, index * shape.head_dim + d, smallest);
  }
  double norms = 0;
  for (int token = 0; token < shape.block_size; ++token) {
    double squares = 0;
    for (int d = 0; d < shape.head_dim; ++d) squares += double{key(token, d)} * key(token, d);
    norms += std::sqrt(squares);
  }
  arrays.key_norm[index] = static_cast<float>(norms / shape.block_size);
}

double ReferenceScore(const ScoreRequest& request, const MatrixView& q, const KvShape& shape,
                      const KvLayer& arrays, int32_t block, int kv_head) {
  const int64_t index = int64_t{block} * shape.kv_heads + kv_head;
  if (request.scorer == BlockScorer::kH2o) return OrLowest(arrays.key_norm[index]);
  const int group = q.cols / shape.head_dim / shape.kv_heads;
  const int rows = request.row_end - request.row_begin;
  double heads = 0;
  for (int h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    double sum = 0, largest = -HUGE_VAL;
    for (int row = request.row_begin; row < request.row_end; ++row) {
      const float* query = q.data + row * q.stride + int64_t{h} * shape.head_dim;
      const double score = ScoreQuery(request.scorer, query, shape, arrays, index * shape.head_dim);
      sum += score;
      largest = std::max(largest, score);
    }
    heads += request.reduce == ScoreReduce::kMax ? largest : sum / rows;
  }
  return OrLowest(heads / group);
}

}  // namespace talon
