#include "apps/common/command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <utility>

#include "apps/common/table.h"
#include "base/nearest_name.h"
#include "setup/wrap_text.h"

namespace talon {
namespace {

constexpr const char* kProgram = "talon";
constexpr size_t kNameColumns = 30;

std::string Wrap(const std::string& text) {
  return WrapText(text, kTerminalColumns - kNameColumns);
}

// The command that was being parsed, and how the user spells it: "talon bench decode".
const CLI::App* ChosenCommand(const CLI::App& app, std::string* spelling) {
  const CLI::App* command = &app;
  *spelling = kProgram;
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

bool IsFlag(const std::string& argument) { return argument.starts_with("-") && argument != "-"; }

std::vector<std::string> LongNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& each : option->get_lnames()) names.push_back(each);
  }
  return names;
}

// The commands below `app` that take the flag, as the user spells them.
void FindTakers(const CLI::App& app, const std::string& spelling, const std::string& name,
                std::vector<std::string>* takers) {
  for (const CLI::App* each : app.get_subcommands({})) {
    const std::string child = spelling + " " + each->get_name();
    if (std::ranges::count(LongNames(*each), name) > 0) takers->push_back("'" + child + "'");
    FindTakers(*each, child, name, takers);
  }
}

std::string UnknownFlag(const std::string& argument, const CLI::App& app, const CLI::App& command,
                        const std::string& spelling) {
  const std::string flag = argument.substr(0, argument.find('='));
  const std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  const std::vector<std::string> known = LongNames(command);
  if (std::ranges::count(known, name) > 0) return flag + " must come after '" + spelling + "'";
  std::vector<std::string> takers;
  FindTakers(app, kProgram, name, &takers);
  if (!takers.empty() && &command != &app) {
    return fmt::format("{}: '{}' has no use for it, {} does", flag, spelling, takers.front());
  }
  std::vector<std::string> offered = known;
  std::erase(offered, "help");  // every error names it already
  return "unknown flag " + flag + DidYouMean("--", name, offered);
}

// REQUIRES: there are some.
std::string UnexpectedArguments(const std::vector<std::string>& extras, const CLI::App& app,
                                const CLI::App& command, const std::string& spelling) {
  const auto flag = std::ranges::find_if(extras, IsFlag);
  if (flag != extras.end()) return UnknownFlag(*flag, app, command, spelling);
  const bool text = command.get_option_no_throw("--prompt") != nullptr;
  return "unexpected argument '" + extras.front() + "'" +
         (text ? "; a text of several words needs quotes" : "");
}

// The first argument that the command needs and was not given: "FILE, JSON lines".
std::string MissingArgument(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_required() || option->count() > 0) continue;
    const bool positional = option->get_positional();
    return fmt::format("{}: {}", positional ? option->get_type_name() : option->get_name(),
                       option->get_description());
  }
  return "";
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
  const std::string near = DidYouMean("", extras.front(), known);
  return "unknown command '" + extras.front() + "'" +
         (near.empty() ? ", the commands are " + list : near);
}

// What an option is for, with its default.
std::string Described(const CLI::Option& option) {
  const std::string value = option.get_default_str();
  return option.get_description() + (value.empty() ? "" : " (default " + value + ")");
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
    return Wrap(Described(*option));
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
  const bool wants_command = !command->get_subcommands({}).empty();
  const bool unknown_flag = std::ranges::any_of(extras, IsFlag);
  std::string message = error.what();
  if (wants_command && (extras.empty() || !IsFlag(extras.front()))) {
    message = MissingCommand(extras, *command, spelling);
  } else if (unknown_flag || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    // Before other errors: the value of an unknown flag was taken for an argument, which may be
    // what they are about.
    message = UnexpectedArguments(extras, app, *command, spelling);
  } else if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    message = "'" + spelling + "' needs " + MissingArgument(*command);
  } else if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    message = "bad value: " + message.substr(message.find(": ") + 2);
  }
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message + " (see '" + spelling + " --help')";
}

OptionInfo DescribeOption(const CLI::Option& option) {
  OptionInfo info{.value = option.get_type_size() == 0 ? "" : option.get_type_name(),
                  .help = Described(option),
                  .group = option.get_group()};
  for (const std::string& name : option.get_snames()) info.flags.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) info.flags.push_back("--" + name);
  if (info.flags.empty() && info.value.empty()) info.value = option.get_name(true);
  return info;
}

CommandInfo DescribeCommand(const CLI::App& app, const std::string& name) {
  CommandInfo info{.name = name, .description = app.get_description(), .footer = app.get_footer()};
  for (const CLI::Option* option : app.get_options()) {
    info.options.push_back(DescribeOption(*option));
  }
  for (const CLI::App* each : app.get_subcommands({})) {
    info.commands.push_back(
        DescribeCommand(*each, name.empty() ? each->get_name() : name + " " + each->get_name()));
  }
  return info;
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
  const auto assign = [flag = name.substr(0, name.find(',')),
                       parse = std::move(parse)](const std::string& text) {
    const std::string problem = parse(text);
    if (!problem.empty()) throw CLI::ValidationError(flag, problem);
  };
  return Option(app_->add_option_function<std::string>(name, assign, help));
}

Option Command::Find(const std::string& flag) const { return Option(app_->get_option(flag)); }

size_t Command::Count(std::string_view flag) const {
  const CLI::Option* option = app_->get_option_no_throw(std::string(flag));
  return option == nullptr ? 0 : option->count();
}

CommandInfo Command::Describe() const { return DescribeCommand(*app_, ""); }

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
