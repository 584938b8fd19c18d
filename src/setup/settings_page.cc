#include "setup/settings_page.h"

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "setup/settings.h"

namespace talon {
namespace {

constexpr const char* kHead =
    R"(<!-- Made from src/setup/settings.cc. After a change there: TALON_WRITE_DOCS=1 build/src/setup/setup_test -->
# Flags

Every setting is a flag of the program and a key of the YAML file that `--config FILE` names; flags win over the file.
The Python classes `EngineConfig`, `SpeculativeConfig` and `SamplingParams` take the keys as keywords. In the file the
keys of a group stand under its name:

```yaml
speculative_config:
  method: EAGLE3
```

A flag of true or false alone means true. Commands have flags of their own besides these: `talon COMMAND --help`.
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
    {"bench batch", kModelSettings | kSamplingSettings | kSpeculativeSettings},
    {"bench decode", kModelSettings | kSamplingSettings | kSpeculativeSettings},
    {"bench gpu", kModelSettings},
    {"bench longcontext", kModelSettings | kSamplingSettings | kSpeculativeSettings},
    {"bench nwor", kModelSettings},
    {"bench ops", kModelSettings},
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

// Text of a table's cell.
std::string Cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) {
    text.insert(at, "\\");
  }
  return text;
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

std::string Row(const Setting& setting) {
  const auto with = [](const std::string& names, const std::string& other) {
    return other.empty() ? names : names + " or " + Quoted(other);
  };
  return fmt::format("| {} | {} | {} | {} | {} |\n",
                     with(with(Quoted(setting.flag), setting.short_flag), setting.alias_flag),
                     with(Quoted(setting.key), setting.alias),
                     std::visit(DefaultText(), setting.value), Cell(ValuesText(setting)),
                     Cell(setting.meaning));
}

}  // namespace

std::string SettingsPage() {
  Config defaults;
  std::string page = kHead;
  for (const auto& [set, title] : SettingSetTitles()) {
    const std::vector<Setting> settings = SettingsOf(&defaults, set);
    page += fmt::format("\n## {}\n\nTaken by {}.", title, CommandsOf(set));
    const std::string& group = settings.front().group;  // a set has one
    if (!group.empty()) page += fmt::format(" In the file under `{}`.", group);
    page += "\n\n| flag | key | default | values | meaning |\n|---|---|---|---|---|\n";
    for (const Setting& setting : settings) page += Row(setting);
  }
  return page;
}

}  // namespace talon
