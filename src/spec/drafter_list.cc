#include "spec/drafter_list.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "spec/drafters/merged_drafter.h"

namespace talon {
namespace {

constexpr const char* kNone = "NONE";
constexpr const char* kMerged = "MERGED";
constexpr std::array<DrafterKind, 2> kDefaultSources = {DrafterKind::kEagle3, DrafterKind::kSuffix};

struct DrafterNames {
  DrafterKind kind;
  const char* name;
  std::array<const char*, 2> aliases = {};  // nullptr: none
};

constexpr std::array<DrafterNames, 10> kDrafters = {{
    {DrafterKind::kDflash, "DFLASH"},
    {DrafterKind::kDspark, "DSPARK"},
    {DrafterKind::kEagle, "EAGLE", {"EAGLE1", "EAGLE2"}},
    {DrafterKind::kEagle3, "EAGLE3"},
    {DrafterKind::kGrammar, "GRAMMAR"},
    {DrafterKind::kJetspec, "JETSPEC"},
    {DrafterKind::kNgram, "NGRAM", {"LOOKUP", "PROMPT_LOOKUP"}},
    {DrafterKind::kRemote, "REMOTE"},
    {DrafterKind::kStandalone, "STANDALONE", {"DRAFT_MODEL"}},
    {DrafterKind::kSuffix, "SUFFIX"},
}};

std::string Upper(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

bool Matches(const DrafterNames& drafter, const std::string& upper) {
  return upper == drafter.name ||
         std::any_of(drafter.aliases.begin(), drafter.aliases.end(),
                     [&](const char* alias) { return alias != nullptr && upper == alias; });
}

Status UnknownDrafter(std::string_view name, const std::string& upper) {
  std::string known;
  for (const std::string& each : DrafterList::KnownNames()) {
    known += (known.empty() ? "" : ", ") + each;
  }
  if (upper == "NEXTN" || upper == "MTP") {
    return InvalidArgument(
        "drafter: '{}' needs a target whose file holds multi-token prediction layers, which no "
        "supported model family has; known: {}",
        name, known);
  }
  return InvalidArgument("drafter: '{}' is unknown; known: {}", name, known);
}

Result<DrafterKind> ParseKind(std::string_view name) {
  const std::string upper = Upper(name);
  const auto at = std::find_if(kDrafters.begin(), kDrafters.end(),
                               [&](const DrafterNames& each) { return Matches(each, upper); });
  if (at != kDrafters.end()) return at->kind;
  if (upper == kNone || upper == kMerged) {
    return InvalidArgument("drafter: '{}' cannot be part of a list", name);
  }
  return UnknownDrafter(name, upper);
}

std::vector<std::string_view> SplitNames(std::string_view names) {
  std::vector<std::string_view> parts;
  for (size_t start = 0; start <= names.size();) {
    const size_t end = std::min(names.find_first_of(",+", start), names.size());
    parts.push_back(names.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

}  // namespace

const char* DrafterKindName(DrafterKind kind) {
  for (const DrafterNames& drafter : kDrafters) {
    if (drafter.kind == kind) return drafter.name;
  }
  return "unknown";
}

bool DraftsBlocks(DrafterKind kind) {
  return kind == DrafterKind::kDflash || kind == DrafterKind::kJetspec ||
         kind == DrafterKind::kDspark;
}

bool DraftsWithHead(DrafterKind kind) {
  return kind == DrafterKind::kEagle || kind == DrafterKind::kEagle3 || DraftsBlocks(kind);
}

DrafterKind DrafterFor(DraftKind draft) {
  switch (draft) {
    case DraftKind::kModel:
      return DrafterKind::kStandalone;
    case DraftKind::kEagle:
      return DrafterKind::kEagle;
    case DraftKind::kEagle3:
      return DrafterKind::kEagle3;
    case DraftKind::kDflash:
      return DrafterKind::kDflash;
    case DraftKind::kJetspec:
      return DrafterKind::kJetspec;
    case DraftKind::kDspark:
      return DrafterKind::kDspark;
  }
  return DrafterKind::kStandalone;
}

Result<DrafterList> DrafterList::Parse(std::string_view names) {
  DrafterList list;
  const std::string upper = Upper(names);
  if (upper == kNone) return list;
  if (upper == kMerged) {
    list.kinds_.assign(kDefaultSources.begin(), kDefaultSources.end());
    return list;
  }
  for (const std::string_view name : SplitNames(names)) {
    TALON_ASSIGN_OR_RETURN(const DrafterKind kind, ParseKind(name));
    if (list.Has(kind)) {
      return InvalidArgument("drafter: '{}' twice in '{}'", DrafterKindName(kind), names);
    }
    list.kinds_.push_back(kind);
  }
  if (list.kinds_.size() > MergedDrafter::kMaxSources) {
    return InvalidArgument("drafter: {} sources in '{}', at most {}", list.kinds_.size(), names,
                           MergedDrafter::kMaxSources);
  }
  return list;
}

std::vector<std::string> DrafterList::KnownNames() {
  std::vector<std::string> names = {kMerged, kNone};
  for (const DrafterNames& drafter : kDrafters) names.emplace_back(drafter.name);
  std::sort(names.begin(), names.end());
  return names;
}

bool DrafterList::Has(DrafterKind kind) const {
  return std::find(kinds_.begin(), kinds_.end(), kind) != kinds_.end();
}

bool DrafterList::HasHead() const { return std::ranges::any_of(kinds_, DraftsWithHead); }

std::string DrafterList::Name() const {
  if (none()) return kNone;
  std::string name;
  for (const DrafterKind kind : kinds_) {
    name += (name.empty() ? "" : ",") + std::string(DrafterKindName(kind));
  }
  return name;
}

}  // namespace talon
