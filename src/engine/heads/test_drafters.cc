#include "engine/heads/test_drafters.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "compute/host/host_token_ops.h"
#include "engine/test_engine.h"
#include "model/heads/test_eagle.h"
#include "model/heads/test_heads.h"
#include "model/test_model.h"
#include "spec/drafters/registry.h"

namespace talon {

std::string HeadDir(DrafterKind kind) {
  static std::map<DraftKind, std::unique_ptr<TempDirectory>> dirs;
  const DraftKind draft = kind == DrafterKind::kEagle     ? DraftKind::kEagle
                          : kind == DrafterKind::kEagle3  ? DraftKind::kEagle3
                          : kind == DrafterKind::kJetspec ? DraftKind::kJetspec
                          : kind == DrafterKind::kDspark  ? DraftKind::kDspark
                                                          : DraftKind::kDflash;
  auto& dir = dirs[draft];
  if (dir == nullptr) {
    dir = std::make_unique<TempDirectory>();
    const ModelConfig& target = Small().target->config();
    if (draft == DraftKind::kEagle3) {
      MakeTestHead(target).Write(dir->path());
    } else {
      WriteTestHead(dir->path(), draft, target, 21);
    }
  }
  return dir->path();
}

void GrowsAheadNow::Set(bool ahead) {
  auto* host = dynamic_cast<HostTokenOps*>(Small().backend->token_ops());
  if (host != nullptr) host->GrowTreesAhead(ahead);
}

std::unique_ptr<Drafter> NewHeadDrafter(const std::string& name, const DraftBudget& budget,
                                        bool prefix_index, Metrics* metrics) {
  const DrafterList list = DrafterList::Parse(name).value();
  auto drafter = MakeDrafter(
      list,
      {.draft_model_path = HeadDir(list.kinds().front()), .budget = budget, .top_k = budget.top_k},
      {.backend = Small().backend.get(),
       .decoder = Small().target.get(),
       .metrics = metrics,
       .vocab_size = 512,
       .cache = {.max_length = kHeadsMaxLength,
                 .max_sequences = kHeadsSequences,
                 .prefix_index = prefix_index}});
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(drafter).value();
}

}  // namespace talon
