// Which drafters the settings choose, and with which draft model.
#ifndef TALON_SETUP_DRAFT_CHOICE_H_
#define TALON_SETUP_DRAFT_CHOICE_H_

#include <string>

#include "base/status.h"
#include "setup/config.h"
#include "spec/drafter_list.h"

namespace talon {

struct DraftChoice {
  DrafterList drafters;
  std::string head;  // found beside the model, not named by the user; "" = none
};

// The head that belongs to a model by its place: MODEL/NAME, else MODEL-NAME beside it, where NAME
// is "eagle3" or "block" (any head that drafts a block). Of both, the quicker one on `device`. ""
// if there is none.
std::string HeadBeside(const std::string& model, const std::string& device);
// The one that one of the drafters can use; else "".
std::string HeadBesideFor(const DrafterList& drafters, const std::string& model);

// The drafters that the settings name, or for the method "auto":
// - REMOTE where a draft worker is named, none where the target is remote;
// - what the directory draft_model_path holds: STANDALONE, or a head merged with SUFFIX;
// - the head beside the model, merged with SUFFIX;
// - SUFFIX.
Result<DraftChoice> ChooseDrafters(const Config& config);

}  // namespace talon

#endif  // TALON_SETUP_DRAFT_CHOICE_H_
