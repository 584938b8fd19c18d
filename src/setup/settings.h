// The table of settings: one row for each, which names it in the YAML file, as a flag and in
// Python, says what it does and which values are valid, and points to its field of a Config.
// Parsers, checks, help and docs/flags.md are made from these rows.
#ifndef TALON_SETUP_SETTINGS_H_
#define TALON_SETUP_SETTINGS_H_

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "base/valid_values.h"
#include "setup/config.h"

namespace talon {

// Groups of settings: maps in the file.
inline constexpr const char* kSpeculativeGroup = "speculative_config";
inline constexpr const char* kWorkerGroup = "worker_config";
inline constexpr const char* kRemoteGroup = "remote_config";

// A valid value of a setting that is chosen by name, with what it means where that helps.
struct SettingChoice {
  SettingChoice(const char* name, const char* note = "") : name(name), note(note) {}  // NOLINT
  std::string name;
  std::string note;
};

struct Setting {
  std::string group;    // one of the above, "" = none
  std::string key;      // snake_case
  std::string flag;     // "--kv-dtype"
  std::string meaning;  // "Type of the KV cache"
  std::string help;     // with the valid values: "Type of the KV cache: f32, f16 or bf16"
  std::string kind;     // what the help calls a value: "N", "FILE"
  std::variant<bool*, int*, int64_t*, float*, std::string*, std::vector<std::string>*,
               std::vector<int>*>
      value;
  std::string alias;       // another name that the file may use, "" = none
  std::string alias_flag;  // alias as a flag
  std::string short_flag;  // "-m", "" = none

  std::optional<Range> range;          // range of a number
  std::vector<SettingChoice> choices;  // choices of a number or a text; empty = all
  bool any_case = false;               // choices may be written in upper or lower case
  // Where the choices are a grammar ("cuda:N") and not a list: what checks it.
  Status (*check)(const std::string& text) = nullptr;
};

// Whether a method says that the other settings choose it.
bool IsAutoMethod(const std::string& method);

// Which settings a command takes.
enum SettingSet : unsigned {
  kModelSettings = 1,
  kSamplingSettings = 2,
  kSpeculativeSettings = 4,
  kServeSettings = 8,
  kWorkerSettings = 16,
  kDraftWorkerSettings = 32,
  kRemoteSettings = 64,   // a draft worker's client, and every connection
  kTargetSettings = 128,  // a target worker's client
  kChatSettings = 256,    // what makes prompts of messages
};
inline constexpr unsigned kAllSettings = 511;

// The sets in the order of help and documentation, with their headings.
struct SettingSetTitle {
  SettingSet set;
  const char* title;
};
std::span<const SettingSetTitle> SettingSetTitles();

// The rows of the sets, which point into `config`.
std::vector<Setting> SettingsOf(Config* config, unsigned sets);

// What a value of the setting must be by its type: "a whole number".
const char* TypeText(const Setting& setting);

// The valid values, for errors: "0 to 1", "f32, f16 or bf16"; "" = all of the type.
std::string ValidValues(const Setting& setting);

// Checks the values of the sets. An error names the key, its value and what is valid. Values are
// checked when they are used and not when they are read, because a file may hold settings of
// commands other than the one that reads it.
Status CheckSettings(const Config& config, unsigned sets);
Status CheckWorkerConfig(const WorkerConfig& worker);
Status CheckRemoteConfig(const RemoteConfig& remote);

// Applies a YAML file. Unknown keys are errors that name the nearest valid key; a value of the
// wrong type names the key, the value and the line.
Status LoadConfigFile(const std::string& path, Config* config);
// The same from the file's text; `name` stands for the file in messages.
Status LoadConfigText(const std::string& text, const std::string& name, Config* config);

}  // namespace talon

#endif  // TALON_SETUP_SETTINGS_H_
