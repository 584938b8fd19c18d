#include "apps/common/manual.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

namespace talon {
namespace {

constexpr const char* kOwnFlags = "Options";  // CLI11's heading of flags without one

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// All commands that can be run, those with commands below them left out.
void CollectCommands(const CommandInfo& info, std::vector<const CommandInfo*>* commands) {
  for (const CommandInfo& each : info.commands) {
    if (each.commands.empty()) commands->push_back(&each);
    CollectCommands(each, commands);
  }
}

// ---- The manual page ----

std::string Roff(const std::string& text) {
  std::string escaped = Replace(Replace(text, "\\", "\\e"), "-", "\\-");
  if (escaped.starts_with(".") || escaped.starts_with("'")) escaped.insert(0, "\\&");
  return Replace(Replace(escaped, "\n.", "\n\\&."), "\n'", "\n\\&'");
}

std::string Bold(const std::string& text) { return "\\fB" + Roff(text) + "\\fR"; }

std::string OptionEntry(const OptionInfo& option) {
  std::string names;
  for (const std::string& flag : option.flags) names += (names.empty() ? "" : ", ") + Bold(flag);
  if (!option.value.empty()) {
    names += (names.empty() ? "\\fI" : " \\fI") + Roff(option.value) + "\\fR";
  }
  return fmt::format(".TP\n{}\n{}\n", names, Roff(option.help));
}

std::string CommandSection(const CommandInfo& command) {
  std::string text =
      fmt::format(".SS talon {}\n{}.\n", Roff(command.name), Roff(command.description));
  std::vector<std::string> groups;
  for (const OptionInfo& option : command.options) {
    if (option.group == kOwnFlags || option.flags.empty()) {
      text += OptionEntry(option);
    } else if (std::ranges::find(groups, option.group) == groups.end()) {
      groups.push_back(option.group);
    }
  }
  for (const std::string& group : groups) {
    text += (&group == &groups.front() ? ".PP\nAlso takes the settings of " : ", ") + Bold(group);
  }
  if (!groups.empty()) text += ".\n";
  if (!command.footer.empty()) text += ".PP\n.nf\n" + Roff(command.footer) + "\n.fi\n";
  return text;
}

}  // namespace

std::string ManualPage(const CommandInfo& program, const std::string& version) {
  std::string page = fmt::format(
      ".TH TALON 1 \"\" \"{}\" \"Talon\"\n.SH NAME\ntalon \\- exact speculative decoding\n"
      ".SH SYNOPSIS\n.B talon\n\\fICOMMAND\\fR [\\fIFLAGS\\fR]\n.SH DESCRIPTION\n{}\n.SH "
      "COMMANDS\n",
      Roff(version), Roff(program.description));
  std::vector<const CommandInfo*> commands;
  CollectCommands(program, &commands);
  std::vector<std::pair<std::string, std::string>> settings;  // by heading, in order
  for (const CommandInfo* command : commands) {
    page += CommandSection(*command);
    std::set<std::string> known;
    for (const auto& [group, text] : settings) known.insert(group);
    for (const OptionInfo& option : command->options) {
      if (option.group == kOwnFlags || option.flags.empty() || known.contains(option.group))
        continue;
      if (settings.empty() || settings.back().first != option.group) {
        settings.emplace_back(option.group, "");
      }
      settings.back().second += OptionEntry(option);
    }
  }
  page += ".SH SETTINGS\n";
  for (const auto& [group, text] : settings) page += fmt::format(".SS {}\n{}", Roff(group), text);
  page += fmt::format(".SH EXAMPLES\n.nf\n{}\n.fi\n", Roff(program.footer));
  return page;
}

// ---- Completion ----

namespace {

// How the value of a flag is completed.
struct ValueHint {
  std::set<std::string> words;
  bool files = false;
  bool directories = false;
};

std::map<std::string, ValueHint> HintsByFlag(const std::vector<const CommandInfo*>& commands) {
  std::map<std::string, ValueHint> hints;
  for (const CommandInfo* command : commands) {
    for (const OptionInfo& option : command->options) {
      if (option.value.empty() || option.value == "BOOL") continue;  // a flag alone will do
      for (const std::string& flag : option.flags) {
        ValueHint& hint = hints[flag];
        hint.words.insert(option.choices.begin(), option.choices.end());
        hint.files |= option.value == "FILE";
        hint.directories |= option.value == "DIR";
      }
    }
  }
  return hints;
}

std::string Joined(const std::set<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  return line;
}

std::string FlagsOf(const CommandInfo& command) {
  std::set<std::string> flags;
  for (const OptionInfo& option : command.options) {
    flags.insert(option.flags.begin(), option.flags.end());
  }
  return Joined(flags);
}

std::string NamesBelow(const CommandInfo& info) {
  std::set<std::string> names;
  for (const CommandInfo& each : info.commands) {
    names.insert(each.name.substr(each.name.rfind(' ') + 1));
  }
  return Joined(names);
}

// "    run) words='--config --device';;"
void AddBashCases(const CommandInfo& info, std::string* cases) {
  const std::string words = info.commands.empty() ? FlagsOf(info) : NamesBelow(info) + " --help";
  *cases += fmt::format("    '{}') words='{}';;\n", info.name, words);
  for (const CommandInfo& each : info.commands) AddBashCases(each, cases);
}

std::string BashValueCases(const std::map<std::string, ValueHint>& hints) {
  std::map<std::string, std::string> flags_of;  // by how compgen finds the values
  for (const auto& [flag, hint] : hints) {
    std::string& flags = flags_of[hint.directories ? "-d"
                                  : hint.files     ? "-f"
                                                   : "-W '" + Joined(hint.words) + "'"];
    flags += (flags.empty() ? "" : "|") + flag;
  }
  std::string cases;
  for (const auto& [finds, flags] : flags_of) {
    cases += fmt::format(
        "    {})\n      mapfile -t COMPREPLY < <(compgen {} -- \"$current\")\n"
        "      return;;\n",
        flags, finds);
  }
  return cases;
}

// A text within '[...]' of an argument of _arguments.
std::string ZshText(std::string text) {
  for (const char* special : {"\\", "[", "]", ":"})
    text = Replace(text, special, "\\" + std::string(special));
  return Replace(text, "'", "'\\''");
}

std::string ZshValue(const OptionInfo& option) {
  if (option.value.empty()) return "";
  const std::string action =
      option.value == "DIR"    ? "_files -/"
      : option.value == "FILE" ? "_files"
      : option.choices.empty() ? " "
                               : "(" + Joined({option.choices.begin(), option.choices.end()}) + ")";
  return fmt::format("{}:{}:{}", option.value == "BOOL" ? ":" : "", ZshText(option.value),
                     ZshText(action));
}

void AddZshCases(const CommandInfo& info, std::string* cases) {
  for (const CommandInfo& each : info.commands) AddZshCases(each, cases);
  if (!info.commands.empty()) return;
  *cases += fmt::format("    '{}')\n      _arguments", info.name);
  for (const OptionInfo& option : info.options) {
    for (const std::string& flag : option.flags) {
      *cases +=
          fmt::format(" \\\n        '*{}[{}]{}'", flag, ZshText(option.help), ZshValue(option));
    }
  }
  *cases += " \\\n        '*:argument:_files'\n      ;;\n";
}

std::string ZshCommands(const CommandInfo& info) {
  std::string list;
  for (const CommandInfo& each : info.commands) {
    list += fmt::format(" '{}:{}'", each.name.substr(each.name.rfind(' ') + 1),
                        ZshText(each.description));
  }
  return list;
}

}  // namespace

std::string BashCompletion(const CommandInfo& program) {
  std::vector<const CommandInfo*> commands;
  CollectCommands(program, &commands);
  std::string cases, groups;
  AddBashCases(program, &cases);
  for (const CommandInfo& each : program.commands) {
    if (!each.commands.empty()) groups += (groups.empty() ? "" : "|") + each.name;
  }
  return fmt::format(
      R"(# Completion of talon for bash, written by 'talon completion bash'.
_talon() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local command='' words='' word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in -*) break;; esac
    case $command in
      '') command=$word;;
      {}) command+=" $word"; break;;
      *) break;;
    esac
  done
  case $previous in
{}  esac
  case $command in
{}  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o default -F _talon talon
)",
      groups.empty() ? "-" : groups, BashValueCases(HintsByFlag(commands)), cases);
}

std::string ZshCompletion(const CommandInfo& program) {
  std::string cases, groups;
  AddZshCases(program, &cases);
  for (const CommandInfo& each : program.commands) {
    if (each.commands.empty()) continue;
    groups += fmt::format(
        "  if [[ $command == '{0}' ]]; then\n"
        "    local -a below=({1})\n"
        "    if (( CURRENT == 3 )); then _describe command below; return; fi\n"
        "    command+=\" $words[3]\"\n  fi\n",
        each.name, ZshCommands(each));
  }
  return fmt::format(
      R"(#compdef talon
# Completion of talon for zsh, written by 'talon completion zsh'.
_talon() {{
  local -a commands=({})
  if (( CURRENT == 2 )); then _describe command commands; return; fi
  local command=$words[2]
{}  case $command in
{}  esac
}}
_talon "$@"
)",
      ZshCommands(program), groups, cases);
}

}  // namespace talon
