// The checkpoint file of a head, and the maps between its draft vocabulary and the target's.
#ifndef TALON_MODEL_HEADS_HEAD_FILE_H_
#define TALON_MODEL_HEADS_HEAD_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/files/safetensors.h"

namespace talon {

struct HeadVocabulary {
  int draft = 0;  // at most the target's
  int target = 0;
};

// The safetensors of a head's directory.
Result<SafetensorsReader> OpenHeadFile(const std::string& dir);

// Draft id -> target id by the tensor `name` (d2t), which holds offsets; the identity for "".
Result<std::vector<int32_t>> ReadTargetIds(const SafetensorsReader& file, const std::string& name,
                                           const HeadVocabulary& vocabulary);
// The tensor `name` (t2d), where there is one, marks as many target ids as there are draft ids.
Status CheckTargetMask(const SafetensorsReader& file, const std::string& name,
                       const HeadVocabulary& vocabulary);

}  // namespace talon

#endif  // TALON_MODEL_HEADS_HEAD_FILE_H_
