// The drafters that a user names: none, one, or several whose trees are merged.
#ifndef TALON_SPEC_DRAFTER_LIST_H_
#define TALON_SPEC_DRAFTER_LIST_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/heads/draft_kind.h"

namespace talon {

enum class DrafterKind {
  kDflash,
  kDspark,
  kEagle,
  kEagle3,
  kGrammar,
  kJetspec,
  kNgram,
  kRemote,
  kStandalone,
  kSuffix
};

// "EAGLE3"
const char* DrafterKindName(DrafterKind kind);

// Drafts with a head that continues the target's hidden states.
bool DraftsWithHead(DrafterKind kind);
// With a head that drafts a whole block in one pass.
bool DraftsBlocks(DrafterKind kind);
// Needs a draft model's directory.
inline bool NeedsDraftModel(DrafterKind kind) {
  return DraftsWithHead(kind) || kind == DrafterKind::kStandalone;
}

// The drafter for what a directory holds.
DrafterKind DrafterFor(DraftKind draft);

// A value. Invariant: no drafter is listed twice.
class DrafterList {
 public:
  DrafterList() = default;                         // plain decoding
  DrafterList(DrafterKind kind) : kinds_{kind} {}  // NOLINT(google-explicit-constructor)

  // A name or alias in any case ("lookup" is NGRAM), NONE, or a list of names ("eagle3,lookup",
  // "eagle3+lookup"); MERGED is the list "EAGLE3,SUFFIX". Unknown and refused names are errors that
  // list the known ones.
  static Result<DrafterList> Parse(std::string_view names);

  // All names that Parse takes, without aliases.
  static std::vector<std::string> KnownNames();

  bool none() const { return kinds_.empty(); }
  bool merged() const { return kinds_.size() > 1; }
  bool Has(DrafterKind kind) const;
  bool HasHead() const;
  const std::vector<DrafterKind>& kinds() const { return kinds_; }

  // "NONE", "EAGLE3", "EAGLE3,SUFFIX"
  std::string Name() const;

  bool operator==(const DrafterList&) const = default;

 private:
  std::vector<DrafterKind> kinds_;  // in the user's order: earlier ones win ties
};

}  // namespace talon

#endif  // TALON_SPEC_DRAFTER_LIST_H_
