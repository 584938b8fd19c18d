// How rows of the table of settings are written. Included by the files that hold them.
#ifndef TALON_SETUP_SETTING_ROWS_H_
#define TALON_SETUP_SETTING_ROWS_H_

#include <algorithm>
#include <string>
#include <vector>

#include "setup/settings.h"

namespace talon {

inline constexpr int kDaySeconds = 24 * 3600;
inline constexpr Range kSecondsOfADay{0, kDaySeconds};

// What the help calls a value, and what an error says that it must be.
struct Kind {
  const char* name;
  const char* text;
};

inline Kind KindOf(const bool*) { return {"BOOL", "true or false"}; }
inline Kind KindOf(const int*) { return {"N", "a whole number"}; }
inline Kind KindOf(const int64_t*) { return {"N", "a whole number"}; }
inline Kind KindOf(const float*) { return {"X", "a number"}; }
inline Kind KindOf(const std::string*) { return {"TEXT", "text"}; }
inline Kind KindOf(const std::vector<std::string>*) { return {"TEXT", "a list of texts"}; }
inline Kind KindOf(const std::vector<int>*) { return {"N", "a list of whole numbers"}; }

// What a row may have besides key, field and meaning.
using Choices = std::vector<SettingChoice>;
enum AnyCase { kAnyCase };  // the choices match in any case
struct Check {
  Status (*function)(const std::string& text);
};
struct ValueName {
  const char* name;
};
struct Flag {
  const char* name;
};
struct Alias {
  const char* name;
};
struct Short {
  const char* flag;
};

// "--kv-dtype" of "kv_dtype".
inline std::string FlagOf(const char* prefix, const std::string& key) {
  std::string flag = prefix + key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

inline void Set(const Range& range, Setting* row) { row->range = range; }
inline void Set(const Choices& choices, Setting* row) { row->choices = choices; }
inline void Set(AnyCase, Setting* row) { row->any_case = true; }
inline void Set(Check check, Setting* row) { row->check = check.function; }
inline void Set(ValueName kind, Setting* row) { row->kind = kind.name; }
inline void Set(Flag flag, Setting* row) { row->flag = flag.name; }
inline void Set(Alias alias, Setting* row) {
  row->alias = alias.name;
  row->alias_flag = FlagOf("--", alias.name);
}
inline void Set(Short name, Setting* row) { row->short_flag = name.flag; }

// Adds rows to one group.
class RowAdder {
 public:
  RowAdder(const char* group, std::vector<Setting>* rows) : group_(group), rows_(rows) {}

  template <typename T, typename... More>
  void operator()(const char* key, T* value, const char* meaning, const More&... more) {
    Add("--", key, value, meaning, more...);
  }
  // The flag has a prefix that the key lacks, because within the file the group says it.
  template <typename T, typename... More>
  void Speculative(const char* key, T* value, const char* meaning, const More&... more) {
    Add("--speculative-", key, value, meaning, more...);
  }

 private:
  template <typename T, typename... More>
  void Add(const char* prefix, const std::string& key, T* value, const char* meaning,
           const More&... more) {
    rows_->push_back({.group = group_,
                      .key = key,
                      .flag = FlagOf(prefix, key),
                      .meaning = meaning,
                      .kind = KindOf(value).name,
                      .value = value});
    (Set(more, &rows_->back()), ...);
  }

  const char* group_;
  std::vector<Setting>* rows_;
};

// The rows of workers and of their clients.
void AddWorkerSettings(WorkerConfig* worker, std::vector<Setting>* rows);
void AddDraftWorkerSettings(WorkerConfig* worker, std::vector<Setting>* rows);
void AddRemoteSettings(RemoteConfig* remote, std::vector<Setting>* rows);
void AddTargetSettings(RemoteConfig* remote, std::vector<Setting>* rows);

}  // namespace talon

#endif  // TALON_SETUP_SETTING_ROWS_H_
