// A KV cache and a pass over it, laid out in any way a test wants: the same tokens committed,
// staged or staged in slots, block lists in random order, everything unused poisoned with NaN.
#ifndef TALON_COMPUTE_KV_KV_TESTING_H_
#define TALON_COMPUTE_KV_KV_TESTING_H_

#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "compute/backend.h"
#include "compute/backend_testing.h"

namespace talon::testing {

inline constexpr DType kKvTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3,
                                     DType::kI8};

// The layer that tests of single ops use.
inline constexpr int kLayer = 1;

// `value` in this type.
inline float Rounded(float value, DType dtype) {
  uint32_t storage = 0;
  StoreElement(&storage, dtype, 0, value);
  return LoadElement(&storage, dtype, 0);
}
// head_dim elements as a cache holds them.
std::vector<float> Rounded(const KvShape& shape, std::span<const float> vector);

// One layer's worth of cache in host memory, copied to a backend when it is used.
class KvImage {
 public:
  // `layers` layers, of which only `layer` ever holds values. They are rounded to `numbers`, the
  // cache's type if it is not another one, before they are rounded to the cache's type.
  // `value_magnitude` is the standard deviation of V, that of K is 1.
  KvImage(const KvShape& shape, int layer) : KvImage(shape, layer, shape.dtype) {}
  KvImage(const KvShape& shape, int layer, DType numbers, float value_magnitude = 1);

  // K and V of `content` (any integer names a token's values) for one kv head.
  void WriteSlot(int64_t slot, int head, int64_t content) { Write(slot, head, content); }
  void WriteStaged(int64_t row, int head, int64_t content) { Write(~row, head, content); }

  const KvShape& shape() const { return shape_; }
  int layer() const { return layer_; }
  // The values a head's K or V holds for `content`, rounded to the cache's type.
  std::vector<float> Values(int64_t content, int head, bool value) const;

 private:
  friend class DeviceKv;
  void Write(int64_t place, int head, int64_t content);

  KvShape shape_;
  int layer_;
  DType numbers_;
  float value_magnitude_;
  std::vector<uint8_t> k_blocks_, v_blocks_, k_staged_, v_staged_;
};

// The image in a backend's memory.
class DeviceKv {
 public:
  DeviceKv(Backend& backend, const KvImage& image);
  KvView view() const { return {shape_, layers_}; }
  // One array's elements as floats: blocks of K or V, their staging, key_max or key_min.
  std::vector<float> ReadBlocks(Backend& backend, const void* array) const;
  std::vector<float> ReadStaged(Backend& backend, const void* array) const;
  std::vector<float> ReadSummary(Backend& backend, const void* array) const;

 private:
  void AddSummaries(Backend& backend, KvLayer* arrays);
  std::vector<float> Read(Backend& backend, const void* array, int64_t vectors) const;

  KvShape shape_;
  std::vector<DeviceArray> arrays_;
  std::vector<KvLayer> layers_;
};

// A sequence of a pass. Tokens 0, 1, .. of the sequence have contents base + 0, base + 1, ..
struct SequenceSpec {
  int64_t base = 0;
  int committed = 0;              // tokens in blocks
  int prompt_rows = 0;            // the last of them are rows of this pass
  std::vector<int> parents;       // or: the rows are a tree over the committed tokens
  std::vector<int64_t> contents;  // contents of the nodes; default: base + committed + node
  bool in_slots = false;          // the nodes' K and V are staged in block slots
  int tail = 0;                   // nodes that an earlier pass staged, so without rows
  bool partial = false;           // a block list for each (layer, kv head)
};

// Builds the pass of `sequences` and writes their keys to `image`, in blocks chosen by `random`.
PassPlan BuildPass(const std::vector<SequenceSpec>& sequences, std::mt19937& random,
                   KvImage* image);

// A random tree's parents, depth by depth.
std::vector<int> RandomTree(int nodes, std::mt19937& random);
std::vector<int> Chain(int nodes);

}  // namespace talon::testing

#endif  // TALON_COMPUTE_KV_KV_TESTING_H_
