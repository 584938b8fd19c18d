// How the command line explains itself: help that fits a terminal, and errors of one line.
#ifndef TALON_APPS_COMMON_USAGE_H_
#define TALON_APPS_COMMON_USAGE_H_

#include <CLI/CLI.hpp>
#include <string>

namespace talon {

// Lays out help in 80 columns; defaults stand at the end of a description.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_subcommand(const CLI::App* command) const override;
};

// What was wrong with the command line that `app` failed to parse, in one line: an unknown flag or
// command with the nearest valid one, a value of the wrong kind, and where to read more.
std::string UsageMessage(const CLI::App& app, const CLI::ParseError& error);

}  // namespace talon

#endif  // TALON_APPS_COMMON_USAGE_H_
