// Stands in for the line editor in builds without libedit.
#include "apps/chat/line_input.h"

namespace talon {

std::unique_ptr<LineInput> NewTerminalInput() { return NewPlainInput(); }

}  // namespace talon
