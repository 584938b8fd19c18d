#include "apps/common/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <utility>

#include "apps/common/table.h"
#include "base/nearest_name.h"

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

// Lays out help in 80 columns; defaults stand at the end of a description.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kNameColumns); }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    const bool many = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    return " " + option->get_type_name() + (many ? " ..." : "");
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string value = option->get_default_str();
    return Wrap(option->get_description() + (value.empty() ? "" : " (default " + value + ")"));
  }

  std::string make_subcommand(const CLI::App* command) const override {
    std::stringstream out;
    CLI::detail::format_help(out, command->get_name(), Wrap(command->get_description()),
                             kNameColumns);
    return out.str();
  }
};

// What was wrong with the command line that `app` failed to parse, in one line.
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

template <typename T>
Option AddValue(CLI::App* app, const std::string& name, T* value, const std::string& help) {
  return Option(app->add_option(name, *value, help));
}

}  // namespace

Option& Option::TypeName(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::Group(const std::string& title) {
  option_->group(title);
  return *this;
}

Option& Option::Default(int value) {
  option_->default_val(value);
  return *this;
}

Option& Option::Default(size_t value) {
  option_->default_val(value);
  return *this;
}

Option& Option::Default(float value) {
  option_->default_val(value);
  return *this;
}

Option& Option::Default(double value) {
  option_->default_val(value);
  return *this;
}

Option& Option::Default(const std::string& value) {
  option_->default_val(value);
  return *this;
}

Option& Option::DefaultText(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Option& Option::Delimiter(char delimiter) {
  option_->delimiter(delimiter);
  return *this;
}

Option& Option::OneValuePerFlag() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::OptionalValue() {
  option_->expected(0, 1);
  return *this;
}

Option& Option::Range(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::Range(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::OneOf(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Option& Option::Required() {
  option_->required();
  return *this;
}

Option& Option::Excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

size_t Option::count() const { return option_->count(); }

Command Command::AddSubcommand(const std::string& name, const std::string& description) {
  return Command(app_->add_subcommand(name, description));
}

void Command::RequireSubcommand() { app_->require_subcommand(1); }

Option Command::AddFlag(const std::string& name, bool* value, const std::string& help) {
  return Option(app_->add_flag(name, *value, help));
}

Option Command::AddOption(const std::string& name, int* value, const std::string& help) {
  return AddValue(app_, name, value, help);
}

Option Command::AddOption(const std::string& name, size_t* value, const std::string& help) {
  return AddValue(app_, name, value, help);
}

Option Command::AddOption(const std::string& name, float* value, const std::string& help) {
  return AddValue(app_, name, value, help);
}

Option Command::AddOption(const std::string& name, double* value, const std::string& help) {
  return AddValue(app_, name, value, help);
}

Option Command::AddOption(const std::string& name, std::string* value, const std::string& help) {
  return AddValue(app_, name, value, help);
}

Option Command::AddOption(const std::string& name, std::vector<int>* values,
                          const std::string& help) {
  return AddValue(app_, name, values, help);
}

Option Command::AddOption(const std::string& name, std::vector<double>* values,
                          const std::string& help) {
  return AddValue(app_, name, values, help);
}

Option Command::AddOption(const std::string& name, std::vector<std::string>* values,
                          const std::string& help) {
  return AddValue(app_, name, values, help);
}

Option Command::AddParsed(const std::string& name, ValueParser parse, const std::string& help) {
  const auto assign = [name, parse = std::move(parse)](const std::string& text) {
    const std::string problem = parse(text);
    if (!problem.empty()) throw CLI::ValidationError(name, problem);
  };
  return Option(app_->add_option_function<std::string>(name, assign, help));
}

Option Command::Find(const std::string& flag) const { return Option(app_->get_option(flag)); }

size_t Command::Count(std::string_view flag) const { return app_->count(std::string(flag)); }

void Command::SetFooter(const std::string& text) { app_->footer(text); }

void Command::OnChosen(std::function<void()> callback) { app_->callback(std::move(callback)); }

CommandLine::CommandLine(const std::string& description, const std::string& version)
    : app_(std::make_unique<CLI::App>(description, "talon")) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
  app_->formatter(std::make_shared<HelpFormatter>());
}

CommandLine::~CommandLine() = default;

Result<std::optional<int>> CommandLine::Parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    return std::optional<int>(app_->exit(done));
  } catch (const CLI::ParseError& error) {
    return InvalidArgument("{}", UsageMessage(*app_, error));
  }
  return std::optional<int>();
}

}  // namespace talon
