#include "python/settings.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/nearest_name.h"
#include "python/raise.h"

namespace talon {

namespace py = pybind11;

namespace {

constexpr std::pair<const char*, SettingSet> kSets[] = {{"model", kModelSettings},
                                                        {"sampling", kSamplingSettings},
                                                        {"speculative", kSpeculativeSettings}};

SettingSet SetByName(const std::string& name) {
  for (const auto& [known, set] : kSets) {
    if (name == known) return set;
  }
  throw py::key_error(name);
}

// ---- Values to Python ----

py::object ToPython(bool value) { return py::bool_(value); }
py::object ToPython(int value) { return py::int_(value); }
py::object ToPython(int64_t value) { return py::int_(value); }
py::object ToPython(const std::string& value) { return ToPythonText(value); }
// The shortest decimal that is this float, so that 0.3 comes back as 0.3.
py::object ToPython(float value) {
  const std::string digits = fmt::format("{}", value);
  double wide = value;
  std::from_chars(digits.data(), digits.data() + digits.size(), wide);
  return py::float_(wide);
}
template <typename T>
py::object ToPython(const std::vector<T>& values) {
  py::list list;
  for (const T& value : values) list.append(ToPython(value));
  return list;
}

py::object ValueOf(const Setting& setting) {
  return std::visit([](const auto* value) { return ToPython(*value); }, setting.value);
}

// ---- Values from Python: false if the object is of another type ----

bool FromPython(const py::handle& object, bool* value) {
  if (!PyBool_Check(object.ptr())) return false;
  *value = object.ptr() == Py_True;
  return true;
}

template <typename T>
requires std::is_integral_v<T>
bool FromPython(const py::handle& object, T* value) {
  if (PyBool_Check(object.ptr()) || !PyIndex_Check(object.ptr())) return false;
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
  if (!number) throw py::error_already_set();
  int overflow = 0;
  const long long wide = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0 || wide < std::numeric_limits<T>::min() ||
      wide > std::numeric_limits<T>::max()) {
    throw py::value_error(fmt::format("{}, must be {} to {}", std::string(py::str(number)),
                                      std::numeric_limits<T>::min(),
                                      std::numeric_limits<T>::max()));
  }
  *value = static_cast<T>(wide);
  return true;
}

bool FromPython(const py::handle& object, float* value) {
  if (PyBool_Check(object.ptr())) return false;
  if (!PyFloat_Check(object.ptr()) && !PyIndex_Check(object.ptr())) return false;
  const double wide = PyFloat_AsDouble(object.ptr());
  if (wide == -1.0 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  *value = static_cast<float>(wide);
  return true;
}

bool FromPython(const py::handle& object, std::string* value) {
  if (!PyUnicode_Check(object.ptr())) return false;
  *value = FromPythonText(object, "text");
  return true;
}

// A single value stands for a list of one, as in the file.
template <typename T>
bool FromPython(const py::handle& object, std::vector<T>* values) {
  std::vector<T> read(1);
  if (!PyList_Check(object.ptr()) && !PyTuple_Check(object.ptr())) {
    if (!FromPython(object, &read[0])) return false;
  } else {
    read.resize(py::len(object));
    size_t index = 0;
    for (const py::handle& item : object) {
      if (!FromPython(item, &read[index++])) return false;
    }
  }
  *values = std::move(read);
  return true;
}

void Assign(const Setting& setting, const py::handle& object) {
  const bool fits = [&] {
    try {
      return std::visit([&](auto* value) { return FromPython(object, value); }, setting.value);
    } catch (const py::value_error& error) {
      throw py::value_error(setting.key + ": " + error.what());
    }
  }();
  if (fits) return;
  throw py::type_error(fmt::format("{}: {}, must be {}", setting.key, std::string(py::repr(object)),
                                   TypeText(setting)));
}

const Setting& Find(const std::vector<Setting>& settings, const std::string& key) {
  const auto at = std::find_if(settings.begin(), settings.end(), [&](const Setting& setting) {
    return setting.key == key || (!setting.alias.empty() && setting.alias == key);
  });
  if (at != settings.end()) return *at;
  std::vector<std::string> known;
  for (const Setting& setting : settings) known.push_back(setting.key);
  const std::string nearest = NearestName(key, known);
  throw py::type_error(fmt::format("unknown key '{}'{}", key,
                                   nearest.empty() ? "" : ", did you mean '" + nearest + "'?"));
}

// ---- Functions of the module ----

// The rows of a set: key, alias, help, and the default, whose type is the setting's.
py::list Table(const std::string& set) {
  Config config;
  py::list rows;
  for (const Setting& setting : SettingsOf(&config, SetByName(set))) {
    py::dict row;
    row["key"] = setting.key;
    row["alias"] = setting.alias;
    row["help"] = setting.help;
    row["default"] = ValueOf(setting);
    row["type"] = std::visit(
        [](const auto* value) {
          using T = std::decay_t<decltype(*value)>;
          if (std::is_same_v<T, std::vector<std::string>>) return "list[str]";
          if (std::is_same_v<T, std::vector<int>>) return "list[int]";
          if (std::is_same_v<T, std::string>) return "str";
          if (std::is_same_v<T, bool>) return "bool";
          return std::is_same_v<T, float> ? "float" : "int";
        },
        setting.value);
    rows.append(row);
  }
  return rows;
}

// (key, value) as the engine keeps them: an alias by its key, a number at its precision.
py::tuple Normalise(const std::string& set, const std::string& key, const py::object& value) {
  Config config;
  const auto settings = SettingsOf(&config, SetByName(set));
  const Setting& setting = Find(settings, key);
  Assign(setting, value);
  return py::make_tuple(setting.key, ValueOf(setting));
}

// All sets' values after reading a YAML text.
py::dict ReadYaml(const std::string& text, const std::string& name) {
  Config config;
  RaiseIfError(LoadConfigText(text, name, &config));
  py::dict sets;
  for (const auto& [set_name, set] : kSets) {
    py::dict values;
    for (const Setting& setting : SettingsOf(&config, set)) {
      values[setting.key.c_str()] = ValueOf(setting);
    }
    sets[set_name] = values;
  }
  return sets;
}

}  // namespace

void ApplyValues(const py::dict& values, SettingSet set, Config* config) {
  const auto settings = SettingsOf(config, set);
  for (const auto& [key, value] : values) Assign(Find(settings, key.cast<std::string>()), value);
}

void BindSettings(py::module_* module) {
  module->def("settings", &Table, py::arg("set"));
  module->def("normalise", &Normalise, py::arg("set"), py::arg("key"), py::arg("value"));
  module->def("read_yaml", &ReadYaml, py::arg("text"), py::arg("name"));
}

}  // namespace talon
