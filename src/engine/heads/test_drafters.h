// Drafters with random heads of every kind for the small test model, for tests.
#ifndef TALON_ENGINE_HEADS_TEST_DRAFTERS_H_
#define TALON_ENGINE_HEADS_TEST_DRAFTERS_H_

#include <memory>
#include <string>

#include "observe/metrics.h"
#include "spec/drafter.h"
#include "spec/drafter_list.h"

namespace talon {

inline constexpr DraftBudget kHeadsBudget{.max_nodes = 24, .max_depth = 6, .top_k = 4};
inline constexpr int kHeadsMaxLength = 256;
inline constexpr int kHeadsSequences = 35;  // more than a block head runs in one pass

// The folder of the head for a drafter, written once.
std::string HeadDir(DrafterKind kind);

// While it lives, drafters are made that grow trees ahead of the host, as on devices.
class GrowsAheadNow {
 public:
  explicit GrowsAheadNow(bool ahead = true) { Set(ahead); }
  ~GrowsAheadNow() { Set(false); }

 private:
  static void Set(bool ahead);
};

std::unique_ptr<Drafter> NewHeadDrafter(const std::string& name, const DraftBudget& budget,
                                        bool prefix_index, Metrics* metrics);

}  // namespace talon

#endif  // TALON_ENGINE_HEADS_TEST_DRAFTERS_H_
