#include "setup/settings_page.h"

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "setup/settings.h"
#include "setup/wrap_text.h"

namespace talon {
namespace {

constexpr size_t kColumns = 100;

constexpr const char* kHead =
    R"(<!-- Made from src/setup/settings.cc. After a change there:
     TALON_WRITE_DOCS=1 build/src/setup/setup_test -->
# Flags

Every setting is a flag of the program and a key of the YAML file that `--config FILE` names; flags
win over the file. The Python classes `EngineConfig`, `SpeculativeConfig` and `SamplingParams` take
the keys as keywords. In the file the keys of a group stand under its name:

```yaml
speculative_config:
  method: EAGLE3
```

A flag of true or false alone means true. The key is the flag's name with underscores where no other
is given; a default that is not given is empty. Commands have flags of their own besides these:
`talon COMMAND --help`.
)";

struct CommandSets {
  const char* command;
  unsigned sets;
};

// A test compares this with the help of the commands.
constexpr CommandSets kCommands[] = {
    {"run",
     kModelSettings | kSamplingSettings | kSpeculativeSettings | kRemoteSettings | kTargetSettings},
    {"chat", kChatSettings | kModelSettings | kSamplingSettings | kSpeculativeSettings},
    {"serve",
     kServeSettings | kChatSettings | kModelSettings | kSpeculativeSettings | kRemoteSettings},
    {"show", kChatSettings | kModelSettings | kSamplingSettings | kSpeculativeSettings},
    {"draft-worker",
     kWorkerSettings | kDraftWorkerSettings | kModelSettings | kSpeculativeSettings},
    {"target-worker", kWorkerSettings | kModelSettings | kSpeculativeSettings},
    {"check", kModelSettings},
    {"doctor", kModelSettings | kSamplingSettings | kSpeculativeSettings},
    {"bench agreement", kModelSettings | kSpeculativeSettings},
    {"bench batch", kModelSettings | kSamplingSettings | kSpeculativeSettings},
    {"bench decode", kModelSettings | kSamplingSettings | kSpeculativeSettings},
    {"bench gpu", kModelSettings},
    {"bench longcontext", kModelSettings | kSamplingSettings | kSpeculativeSettings},
    {"bench nwor", kModelSettings},
    {"bench ops", kModelSettings},
    {"bench payoff", kModelSettings | kSpeculativeSettings},
    {"bench remote", kModelSettings | kSamplingSettings | kRemoteSettings | kTargetSettings},
    {"bench scv", kModelSettings},
    {"bench simulate", kModelSettings | kSpeculativeSettings},
    {"bench tasks", kChatSettings | kModelSettings | kSamplingSettings | kSpeculativeSettings},
    {"bench verify", kModelSettings},
};

std::string CommandsOf(SettingSet set) {
  std::string list;
  for (const CommandSets& each : kCommands) {
    if ((each.sets & set) == 0) continue;
    list += (list.empty() ? "`" : ", `") + std::string(each.command) + "`";
  }
  return list;
}

std::string Quoted(const std::string& text) { return text.empty() ? "" : "`" + text + "`"; }

struct DefaultText {
  template <typename T>
  std::string operator()(const T* value) const {
    return Quoted(fmt::format("{}", *value));
  }
  template <typename T>
  std::string operator()(const std::vector<T>*) const {
    return "";  // all lists are empty by default
  }
};

std::string ValuesText(const Setting& setting) {
  if (setting.range) return setting.range->ToString();
  if (setting.choices.empty()) {
    const bool named = setting.kind == "DIR" || setting.kind == "FILE" || setting.kind == "ADDRESS";
    return named ? setting.kind : TypeText(setting);
  }
  std::vector<std::string> names;
  for (const SettingChoice& choice : setting.choices) {
    names.push_back(Quoted(choice.name) + (choice.note.empty() ? "" : " (" + choice.note + ")"));
  }
  return JoinWithOr(names);
}

// The key's names, where they do not follow from the flag's: "key `method`; ".
std::string KeyText(const Setting& setting) {
  std::string name = setting.flag.substr(2);
  std::ranges::replace(name, '-', '_');
  if (name == setting.key && setting.alias.empty()) return "";
  const std::string alias = setting.alias.empty() ? "" : " or " + Quoted(setting.alias);
  return fmt::format("key {}{}; ", Quoted(setting.key), alias);
}

// An entry of a list, in lines of kColumns.
std::string Entry(const Setting& setting) {
  std::string flags = Quoted(setting.flag);
  for (const std::string& other : {setting.short_flag, setting.alias_flag}) {
    if (!other.empty()) flags += " or " + Quoted(other);
  }
  std::string initial = std::visit(DefaultText(), setting.value);
  if (!initial.empty()) initial = "; default " + initial;
  std::string text = WrapText(fmt::format("{} ({}{}{}): {}", flags, KeyText(setting),
                                          ValuesText(setting), initial, setting.meaning),
                              kColumns - 2);
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3) {
    text.insert(at + 1, "  ");
  }
  return "- " + text + "\n";
}

}  // namespace

std::string SettingsPage() {
  Config defaults;
  std::string page = kHead;
  for (const auto& [set, title] : SettingSetTitles()) {
    const std::vector<Setting> settings = SettingsOf(&defaults, set);
    std::string taken = fmt::format("Taken by {}.", CommandsOf(set));
    const std::string& group = settings.front().group;  // a set has one
    if (!group.empty()) taken += fmt::format(" In the file under `{}`.", group);
    page += fmt::format("\n## {}\n\n{}\n\n", title, WrapText(taken, kColumns));
    for (const Setting& setting : settings) page += Entry(setting);
  }
  return page;
}

}  // namespace talon
