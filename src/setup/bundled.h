// Where the files are that come with the program.
#ifndef TALON_SETUP_BUNDLED_H_
#define TALON_SETUP_BUNDLED_H_

#include <string>

#include "base/status.h"
#include "spec/drafter_list.h"

namespace talon {

// The model that runs where the user names none.
inline constexpr const char* kBundledModel = "tiny";

// A file of the repository, found from the working directory or the program's, or in share/talon
// where the program is installed. The error says where it was looked for.
Result<std::string> BundledFile(const std::string& path);
// The directory of a bundled model.
Result<std::string> BundledModelDir(const std::string& name);
// The name of the bundled draft model for these drafters.
const char* BundledDraftModel(const DrafterList& drafters);

// The directory that the setting `model` means: itself, or the bundled model's if it is empty.
Result<std::string> ModelDir(const std::string& dir);

// The model's name for clients: the last part of its path. Empty = the bundled model's.
std::string ShortModelName(const std::string& dir);

}  // namespace talon

#endif  // TALON_SETUP_BUNDLED_H_
