#include "setup/draft_choice.h"

#include <array>
#include <filesystem>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "setup/bundled.h"
#include "setup/settings.h"

namespace talon {
namespace {

// The levels of EAGLE-3 cost a GPU a pass each, which takes its time however few its rows are; one
// pass over a block has more rows, which cost a CPU more than levels.
constexpr std::array<const char*, 2> kHeadsOnCpu = {"eagle3", "block"};
constexpr std::array<const char*, 2> kHeadsOnGpu = {"block", "eagle3"};

// The directories that are there.
std::vector<std::string> HeadsBeside(const std::string& model, std::span<const char* const> names) {
  std::vector<std::string> heads;
  if (model.empty()) return heads;
  const auto path = std::filesystem::path(model + "/").lexically_normal().parent_path();
  for (const std::string name : names) {
    for (const std::string& head : {(path / name).string(), path.string() + "-" + name}) {
      if (IsDirectory(head)) heads.push_back(head);
    }
  }
  return heads;
}

// A head with SUFFIX, which costs next to nothing and knows what repeats; a model by itself.
DrafterList DraftersFor(DraftKind kind) {
  const DrafterKind drafter = DrafterFor(kind);
  if (!DraftsWithHead(drafter)) return drafter;
  return DrafterList::Parse(std::string(DrafterKindName(drafter)) + ",SUFFIX").value();
}

Result<DraftChoice> FindHead(const Config& config) {
  const auto model = ModelDir(config.model);
  const std::string head = model.ok() ? HeadBeside(*model, config.device) : "";
  if (head.empty()) return DraftChoice{.drafters = DrafterKind::kSuffix};
  const auto kind = DraftKindOf(head);
  if (kind.ok()) return DraftChoice{.drafters = DraftersFor(*kind), .head = head};
  LogWarning("{}; drafting with SUFFIX alone", kind.status().message());
  return DraftChoice{.drafters = DrafterKind::kSuffix};
}

}  // namespace

std::string HeadBeside(const std::string& model, const std::string& device) {
  const auto heads = HeadsBeside(model, device == "cpu" ? kHeadsOnCpu : kHeadsOnGpu);
  return heads.empty() ? "" : heads.front();
}

std::string HeadBesideFor(const DrafterList& drafters, const std::string& model) {
  if (!drafters.HasHead()) return "";
  for (const std::string& head : HeadsBeside(model, kHeadsOnCpu)) {
    const auto kind = DraftKindOf(head);
    if (kind.ok() && drafters.Has(DrafterFor(*kind))) return head;
  }
  return "";
}

Result<DraftChoice> ChooseDrafters(const Config& config) {
  const SpeculativeConfig& speculative = config.speculative;
  if (!IsAutoMethod(speculative.method)) {
    TALON_ASSIGN_OR_RETURN(DrafterList named, DrafterList::Parse(speculative.method));
    return DraftChoice{.drafters = std::move(named)};
  }
  if (!config.remote.draft_address.empty()) return DraftChoice{.drafters = DrafterKind::kRemote};
  if (!config.remote.target_address.empty()) return DraftChoice();
  if (speculative.draft_model_path.empty()) return FindHead(config);
  const auto kind = DraftKindOf(speculative.draft_model_path);
  if (!kind.ok()) return kind.status().WithContext("draft_model_path");
  return DraftChoice{.drafters = DraftersFor(*kind)};
}

}  // namespace talon
