// The command line: commands with their flags, what they are described as, and what runs.
//
// A thin layer over CLI11, which command_line.cc alone includes: its headers take seconds to
// compile. Option and Command are handles that may be copied; what they refer to belongs to
// the CommandLine.
#ifndef TALON_APPS_COMMON_COMMAND_LINE_H_
#define TALON_APPS_COMMON_COMMAND_LINE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace talon {

// A flag, or an argument that is told by its place. Setters return the option, for chains.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  // What stands for the value in the help, such as "FILE".
  Option& TypeName(const std::string& name);
  // The heading under which the help lists it.
  Option& Group(const std::string& title);
  // The help shows this value; it must be one that the checks allow.
  Option& Default(int value);
  Option& Default(size_t value);
  Option& Default(float value);
  Option& Default(double value);
  Option& Default(const std::string& value);
  // The help shows this text; nothing is checked.
  Option& DefaultText(const std::string& text);
  // One argument may hold several values with this character between them.
  Option& Delimiter(char delimiter);
  // Each flag takes one value, so what follows is not swallowed.
  Option& OneValuePerFlag();
  // A flag alone is allowed, too; its value is the empty text.
  Option& OptionalValue();
  Option& Range(int least, int most);
  Option& Range(double least, double most);
  Option& OneOf(const std::vector<std::string>& values);
  Option& Required();
  Option& Excludes(const Option& other);

  // How often the user gave it. REQUIRES: the command line was parsed.
  size_t count() const;

 private:
  CLI::Option* option_;
};

// A flag or argument as the help describes it.
struct OptionInfo {
  std::vector<std::string> flags;    // "-m", "--model"; empty: an argument told by its place
  std::string value;                 // what stands for the value, such as "DIR"; empty: takes none
  std::string help;                  // with the default
  std::string group;                 // its heading
  std::vector<std::string> choices;  // valid values; not filled in here
};

// A command as the help describes it, for the manual page and completion.
struct CommandInfo {
  std::string name;  // as it is typed after the program's: "bench decode"; empty: the program
  std::string description;
  std::string footer;
  std::vector<OptionInfo> options;
  std::vector<CommandInfo> commands;
};

// Parses one value and stores it. Returns what is wrong with the text, empty if nothing is.
using ValueParser = std::function<std::string(const std::string& text)>;

class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command AddSubcommand(const std::string& name, const std::string& description);
  void RequireSubcommand();

  // `name` is "--flag", or a plain word for an argument without a flag. Values are stored while the
  // command line is parsed.
  Option AddFlag(const std::string& name, bool* value, const std::string& help);
  Option AddOption(const std::string& name, int* value, const std::string& help);
  Option AddOption(const std::string& name, size_t* value, const std::string& help);
  Option AddOption(const std::string& name, float* value, const std::string& help);
  Option AddOption(const std::string& name, double* value, const std::string& help);
  Option AddOption(const std::string& name, std::string* value, const std::string& help);
  Option AddOption(const std::string& name, std::vector<int>* values, const std::string& help);
  Option AddOption(const std::string& name, std::vector<double>* values, const std::string& help);
  Option AddOption(const std::string& name, std::vector<std::string>* values,
                   const std::string& help);
  Option AddParsed(const std::string& name, ValueParser parse, const std::string& help);
  // REQUIRES: there is a flag of that name.
  Option Find(const std::string& flag) const;
  // How often the user gave a flag; 0 where the command has no such flag. REQUIRES: the command
  // line was parsed.
  size_t Count(std::string_view flag) const;

  // Text at the end of the help.
  void SetFooter(const std::string& text);
  // This command and those below it.
  CommandInfo Describe() const;
  // Called at the end of parsing if the user chose this command.
  void OnChosen(std::function<void()> callback);

 private:
  CLI::App* app_;
};

class CommandLine {
 public:
  CommandLine(const std::string& description, const std::string& version);
  ~CommandLine();

  // The program itself, to which commands are added.
  Command root() const { return Command(app_.get()); }

  // A value is an exit code: --help or --version was printed. No value: the command line is good. A
  // failure says in one line what is wrong with it: an unknown flag or command with the nearest
  // valid one, a value of the wrong kind, and where to read more.
  Result<std::optional<int>> Parse(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace talon

#endif  // TALON_APPS_COMMON_COMMAND_LINE_H_
