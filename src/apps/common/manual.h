// The program described for other programs: a manual page and completion for shells. All of it is
// made from the commands themselves, so it cannot disagree with --help.
#ifndef TALON_APPS_COMMON_MANUAL_H_
#define TALON_APPS_COMMON_MANUAL_H_

#include <string>

#include "apps/common/command_line.h"

namespace talon {

// `program` is the root. In roff with the `man` macros. Flags that several commands share under a
// heading of their own stand there once.
std::string ManualPage(const CommandInfo& program, const std::string& version);

std::string BashCompletion(const CommandInfo& program);
std::string ZshCompletion(const CommandInfo& program);

}  // namespace talon

#endif  // TALON_APPS_COMMON_MANUAL_H_
