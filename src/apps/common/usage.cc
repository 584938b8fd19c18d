#include "apps/common/usage.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "apps/common/table.h"
#include "base/nearest_name.h"
#include "setup/config.h"

namespace talon {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kNameColumns = 30;

std::string Wrap(const std::string& text) { return WrapText(text, kColumns - kNameColumns); }

// The command that was being parsed, and how the user spells it: "talon bench decode".
const CLI::App* ChosenCommand(const CLI::App& app, std::string* spelling) {
  const CLI::App* command = &app;
  *spelling = "talon";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    *spelling += " " + command->get_name();
  }
  return command;
}

std::string DidYouMean(const char* prefix, const std::string& name,
                       const std::vector<std::string>& known) {
  const std::string nearest = NearestName(name, known);
  return nearest.empty() ? "" : std::string(", did you mean ") + prefix + nearest + "?";
}

std::string UnexpectedArgument(const std::vector<std::string>& extras, const CLI::App& command,
                               const std::string& spelling) {
  const auto at = std::find_if(extras.begin(), extras.end(),
                               [](const std::string& text) { return text.starts_with("-"); });
  if (at == extras.end()) return "unexpected argument '" + extras.front() + "'";
  const std::string flag = at->substr(0, at->find('='));
  const std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& each : option->get_lnames()) known.push_back(each);
  }
  if (std::find(known.begin(), known.end(), name) != known.end()) {
    return flag + " must come after '" + spelling + "'";
  }
  return "unknown flag " + flag + DidYouMean("--", name, known);
}

std::string MissingCommand(const std::vector<std::string>& extras, const CLI::App& command,
                           const std::string& spelling) {
  std::vector<std::string> known;
  std::string list;
  for (const CLI::App* each : command.get_subcommands({})) {
    known.push_back(each->get_name());
    list += (list.empty() ? "" : ", ") + each->get_name();
  }
  if (extras.empty()) return "'" + spelling + "' needs a command: " + list;
  if (extras.front().starts_with("-")) return UnexpectedArgument(extras, command, spelling);
  const std::string near = DidYouMean("", extras.front(), known);
  return "unknown command '" + extras.front() + "'" +
         (near.empty() ? ", the commands are " + list : near);
}

}  // namespace

HelpFormatter::HelpFormatter() { column_width(kNameColumns); }

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  if (option->get_type_size() == 0) return "";
  const bool many = option->get_expected_max() == CLI::detail::expected_max_vector_size;
  return " " + option->get_type_name() + (many ? " ..." : "");
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  const std::string value = option->get_default_str();
  return Wrap(option->get_description() + (value.empty() ? "" : " (default " + value + ")"));
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  std::stringstream out;
  CLI::detail::format_help(out, command->get_name(), Wrap(command->get_description()),
                           kNameColumns);
  return out.str();
}

std::string UsageMessage(const CLI::App& app, const CLI::ParseError& error) {
  std::string spelling;
  const CLI::App* command = ChosenCommand(app, &spelling);
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  std::string message = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !extras.empty()) {
    message = UnexpectedArgument(extras, *command, spelling);
  } else if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    message = MissingCommand(extras, *command, spelling);
  } else if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    message = "bad value: " + message.substr(message.find(": ") + 2);
  }
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message + " (see '" + spelling + " --help')";
}

}  // namespace talon
