// Identifiers shared by several modules.
#ifndef TALON_BASE_IDS_H_
#define TALON_BASE_IDS_H_

#include <cstdint>

namespace talon {

using SequenceId = int64_t;  // unique for the life of an engine, never reused

}  // namespace talon

#endif  // TALON_BASE_IDS_H_
