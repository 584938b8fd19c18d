// Attention on the device in the plainest way, for the pass fuzzer: fast enough to check every row
// of a large batch, and independent of the plans and kernels under test.
#ifndef TALON_COMPUTE_CUDA_TESTING_NAIVE_ATTENTION_H_
#define TALON_COMPUTE_CUDA_TESTING_NAIVE_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "compute/kv_view.h"
#include "compute/matrix.h"

namespace talon::cuda {

// The keys of one row and kv head: the first `prefix_len` places of a list, then `num_nodes`
// others.
struct NaiveKeys {
  int64_t list_begin = 0;  // in NaiveAttention::places
  int32_t prefix_len = 0;
  int32_t num_nodes = 0;
  int64_t nodes_begin = 0;  // in NaiveAttention::places
};

struct NaiveAttention {
  KvShape shape;
  KvLayer layer;
  MatrixView q;  // [rows, heads * head_dim]
  float scale = 1;
  std::vector<NaiveKeys> keys;  // [rows][kv_heads]
  std::vector<int32_t> places;  // slots, or ~(staging row)
};

struct NaiveResult {
  std::vector<float> out;     // [rows][heads * head_dim]
  std::vector<float> spread;  // [rows][heads] sqrt of the sum of squared softmax weights
};
NaiveResult RunNaiveAttention(const NaiveAttention& attention);

// Writes NaN everywhere, whatever the type.
void Poison(void* device, size_t bytes);
// Writes pseudo-random values of variance `deviation`^2, a function of the seed and the index.
void FillRandom(MatrixView matrix, uint64_t seed, float deviation);
// The same for K and V of the places, all kv heads, in the cache's type (not float32).
void FillPlaces(const KvShape& shape, const KvLayer& layer, const std::vector<int32_t>& places,
                uint64_t seed);

}  // namespace talon::cuda

#endif  // TALON_COMPUTE_CUDA_TESTING_NAIVE_ATTENTION_H_
