// Attention of a backend over sequences laid out in any way (kv_testing.h), and the comparisons of
// its results.
#ifndef TALON_COMPUTE_ATTENTION_TESTING_H_
#define TALON_COMPUTE_ATTENTION_TESTING_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "compute/backend.h"
#include "compute/backend_testing.h"
#include "compute/kv/kv_testing.h"

namespace talon::testing {

struct Layout {
  DType dtype = DType::kF32;
  std::optional<DType> numbers;  // what K and V are rounded to before, if it is another type
  int head_dim = 64;
  int kv_heads = 2;
  int group = 2;
  int block_size = 16;
  bool partial = false;  // every sequence has its own list for each (layer, kv head)
  int window = 0;
  bool sinks = false;
  float value_magnitude = 1;  // standard deviation of V

  int cols() const { return head_dim * kv_heads * group; }
  std::string Name() const;
};

// The shape of a cache that has room for the sequences.
KvShape ShapeFor(const Layout& layout, const std::vector<SequenceSpec>& sequences);

using Outputs = std::map<int32_t, std::vector<float>>;  // by the row's content

Outputs RunAttention(Backend& backend, const Layout& layout, std::vector<SequenceSpec> sequences,
                     uint32_t seed = 1);

// Rows of `expected` agree within the error of `backend`, a name for MakeBackend.
void ExpectClose(const Outputs& expected, const Outputs& actual, const Layout& layout,
                 const std::string& backend);
// Rows present in both must agree to the bit.
void ExpectSameBits(const Outputs& expected, const Outputs& actual, const std::string& what);

// A row has the same bits in a prompt of `tokens`, and where the keys before `end` are a chunk of
// it, end with staged nodes, or with a tail.
void ExpectBitsOfAnyPlace(Backend& backend, const Layout& layout, int tokens,
                          std::initializer_list<int> ends);

// Trees, prompts, tails and partial views.
std::vector<SequenceSpec> MixedBatch(std::mt19937& random);

using MakeBatch = std::function<std::vector<SequenceSpec>(std::mt19937&)>;

struct ReferenceCase {
  Layout layout;
  std::vector<SequenceSpec> batch;
  Outputs outputs;  // the slow twin's
};
// One for each layout, with a batch of its own.
std::vector<ReferenceCase> MakeReferenceCases(const std::vector<Layout>& layouts, uint32_t seed,
                                              const MakeBatch& make_batch);

// Every sequence has the same bits in the batch and alone.
void ExpectSameBitsAlone(Backend& backend, const Layout& layout,
                         const std::vector<SequenceSpec>& batch);

// The parameter is a name for MakeBackend.
class AttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = MakeBackend(GetParam());
};

}  // namespace talon::testing

#endif  // TALON_COMPUTE_ATTENTION_TESTING_H_
