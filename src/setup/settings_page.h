// docs/flags.md, made from the table of settings.
#ifndef TALON_SETUP_SETTINGS_PAGE_H_
#define TALON_SETUP_SETTINGS_PAGE_H_

#include <string>

namespace talon {

// The page in Markdown: a list for each set of settings, and the commands that take it.
std::string SettingsPage();

}  // namespace talon

#endif  // TALON_SETUP_SETTINGS_PAGE_H_
