#include "setup/draft_choice.h"

#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "setup/bundled.h"
#include "setup/settings.h"

namespace talon {
namespace {

constexpr const char* kHeadName = "eagle3";

// A head with SUFFIX, which costs next to nothing and knows what repeats; a model by itself.
DrafterList DraftersFor(DraftKind kind) {
  const DrafterKind drafter = DrafterFor(kind);
  if (!DraftsWithHead(drafter)) return drafter;
  return DrafterList::Parse(std::string(DrafterKindName(drafter)) + ",SUFFIX").value();
}

Result<DraftChoice> FindHead(const Config& config) {
  const auto model = ModelDir(config.model);
  const std::string head = model.ok() ? HeadBeside(*model) : "";
  if (head.empty()) return DraftChoice{.drafters = DrafterKind::kSuffix};
  const auto kind = DraftKindOf(head);
  if (kind.ok()) return DraftChoice{.drafters = DraftersFor(*kind), .head = head};
  LogWarning("{}; drafting with SUFFIX alone", kind.status().message());
  return DraftChoice{.drafters = DrafterKind::kSuffix};
}

}  // namespace

std::string HeadBeside(const std::string& model) {
  if (model.empty()) return "";
  const auto path = std::filesystem::path(model + "/").lexically_normal().parent_path();
  for (const std::string& head : {(path / kHeadName).string(), path.string() + "-" + kHeadName}) {
    if (IsDirectory(head)) return head;
  }
  return "";
}

std::string HeadBesideFor(const DrafterList& drafters, const std::string& model) {
  if (!drafters.HasHead()) return "";
  std::string head = HeadBeside(model);
  const auto kind = DraftKindOf(head);
  return kind.ok() && drafters.Has(DrafterFor(*kind)) ? head : "";
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
