// What a path holds that should be a model directory in Hugging Face format. Errors name what is
// there instead and, where there is one, the command that gets what is needed.
#ifndef TALON_MODEL_FILES_MODEL_DIR_H_
#define TALON_MODEL_FILES_MODEL_DIR_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace talon {

// A directory with a config.json.
Status CheckModelDir(const std::string& dir);

// An error if `contents`, or their beginning, are a git-lfs pointer to the file `path`.
Status CheckNotLfsPointer(std::string_view contents, const std::string& path);
// The same for a file.
Status CheckFetched(const std::string& path);

// The error of a directory without safetensors, and of one without a tokenizer.json.
Status MissingWeights(const std::string& dir);
Status MissingTokenizer(const std::string& dir);

}  // namespace talon

#endif  // TALON_MODEL_FILES_MODEL_DIR_H_
