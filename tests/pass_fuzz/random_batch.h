// Random batches as the engine builds them: trees, partial views with tails, prompt chunks, forks
// that share blocks, in random numbers and lengths.
#ifndef TALON_TESTS_PASS_FUZZ_RANDOM_BATCH_H_
#define TALON_TESTS_PASS_FUZZ_RANDOM_BATCH_H_

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kv/kv_cache.h"
#include "spec/plan.h"

namespace talon {

struct FuzzShape {
  int kv_heads = 8;
  int group = 4;
  int head_dim = 128;
  int block_size = 16;
  DType dtype = DType::kBF16;
  int64_t pool_elements = int64_t{1} << 27;  // elements of K

  int heads() const { return kv_heads * group; }
  int cols() const { return heads() * head_dim; }
  std::string Name() const {
    return fmt::format("{}x{}x{}_block{}_{}", kv_heads, group, head_dim, block_size,
                       DTypeName(dtype));
  }
};

inline constexpr int kLayers = 2;  // lists of partial views are by layer; only the last one is read
inline constexpr int kMaxRows = 2048;
inline constexpr int kTailRegions = 16;
inline constexpr int kTailRows = 128;

// One batch at a time, of sequences in a cache of kLayers layers.
class RandomBatch {
 public:
  // Takes all blocks of the cache and frees them in random order, so that later sequences get
  // blocks of all places.
  RandomBatch(const FuzzShape& shape, KvCache* kv);

  // The batch of this seed, until FreeAll. REQUIRES: FreeAll was called after the last one.
  void Compose(uint64_t seed);
  void FreeAll();

  const PassPlan& plan() const { return builder_.plan(); }
  int num_rows() const { return builder_.num_rows(); }
  const std::vector<Sequence>& sequences() const { return sequences_; }
  const std::string& text() const { return text_; }  // what the batch is, for messages
  // Adds one sequence's rows to another pass.
  void AddAlone(int sequence, PassBuilder* pass) const { adders_[sequence](pass); }

  // More random numbers of the seed.
  uint64_t Random() { return random_(); }
  int Uniform(int low, int high) { return low + static_cast<int>(random_() % (high - low + 1)); }

 private:
  void ScatterBlocks();
  void Extend(Sequence* sequence, int tokens);
  int LogUniform(int low, int high);
  // Adds rows to the batch, and remembers how.
  void Add(std::function<void(PassBuilder*)> add);
  // A new sequence, or one that shares an earlier one's blocks. Null: the pool is full.
  Sequence* NewSequence(int longest);
  TokenTree RandomTree(int nodes);
  void AddTree(int longest, int most_nodes, bool in_slots, bool partial);
  void AddPartialTree(Sequence* sequence, const TokenTree& tree);
  // They share the rows of a chunk, as the scheduler divides them, and begin anywhere.
  void AddPrompts(int count, int longest);

  FuzzShape shape_;
  KvCache* kv_;
  std::mt19937_64 random_;
  std::vector<Sequence> sequences_;
  std::vector<Reservation> reservations_;
  PassBuilder builder_;
  std::vector<std::function<void(PassBuilder*)>> adders_;  // one for each sequence
  std::string text_;
};

}  // namespace talon

#endif  // TALON_TESTS_PASS_FUZZ_RANDOM_BATCH_H_
