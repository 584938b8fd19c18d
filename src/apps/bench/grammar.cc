// `talon bench grammar`: what grammars cost, over files of JSON schemas with instances that are
// valid or not, as the JSON Schema test suite and MaskBench have them. Each schema is compiled;
// each instance is followed token by token, with the mask of allowed tokens before each, and
// judged.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include "apps/bench/bench.h"
#include "apps/common/table.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/ordered_json.h"
#include "engine/grammar_compiler.h"
#include "setup/bundled.h"
#include "setup/loader.h"

namespace talon {
namespace {

constexpr double kSlow = 10e-3;  // seconds

constexpr const char* kSuite = "/usr/share/json-schema-test-suite/tests/draft7";

struct GrammarOptions {
  std::vector<std::string> schemas = {kSuite};
  bool list = false;
  std::string json;
};

// JSON as models mostly write it: on one line, with a space after commas and colons.
std::string Spaced(const OrderedJson& value) {
  if (value.is_primitive()) {
    return value.dump(-1, ' ', /*ensure_ascii=*/false, OrderedJson::error_handler_t::replace);
  }
  std::string text(value.is_object() ? "{" : "[");
  for (const auto& [key, one] : value.items()) {
    if (text.size() > 1) text += ", ";
    if (value.is_object()) text += Spaced(OrderedJson(key)) + ": ";
    text += Spaced(one);
  }
  return text + (value.is_object() ? "}" : "]");
}

double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<int64_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[at];
}

class GrammarBench {
 public:
  GrammarBench(const Tokenizer* tokenizer, bool list)
      : tokenizer_(*tokenizer), compiler_(tokenizer), list_(list) {
    // The vocabulary's prefix tree is made once for a model.
    (void)compiler_.Compile({.kind = GrammarSpec::Kind::kRegex, .source = "a"});
  }

  // One file: a schema with its tests, or a list of them.
  Status AddFile(const std::string& path) {
    TALON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    const auto json = ParseOrderedJson(text, path);
    if (!json.ok()) return OkStatus();  // deeper than any schema that is taken
    const std::string name = std::filesystem::path(path).stem();
    if (json->is_object()) AddCase(*json, name);
    if (!json->is_array()) return OkStatus();
    for (const OrderedJson& one : *json) AddCase(one, name);
    return OkStatus();
  }

  std::string ToString() const {
    Table counts({"schemas", "compiled", "judged rightly", "instances", "valid refused",
                  "invalid accepted"});
    counts.Add({std::to_string(schemas_), std::to_string(compile_seconds_.size()),
                std::to_string(right_), std::to_string(instances_), std::to_string(valid_refused_),
                std::to_string(invalid_accepted_)});
    Table times({"", "count", "mean", "p50", "p99", "most"});
    AddTimes("mask, us", mask_seconds_, 1e6, &times);
    AddTimes("compile, ms", compile_seconds_, 1e3, &times);
    return counts.ToString() + "\n" + times.ToString();
  }

  Json ToJson() const {
    return {{"vocabulary", tokenizer_.vocab_size()},
            {"schemas", schemas_},
            {"compiled", compile_seconds_.size()},
            {"judged_rightly", right_},
            {"instances", instances_},
            {"valid_refused", valid_refused_},
            {"invalid_accepted", invalid_accepted_},
            {"mask_us", TimesOf(mask_seconds_, 1e6)},
            {"compile_ms", TimesOf(compile_seconds_, 1e3)}};
  }

 private:
  void AddCase(const OrderedJson& one, const std::string& name) {
    if (!one.is_object() || !one.contains("schema")) return;
    ++schemas_;
    const GrammarSpec spec{.kind = GrammarSpec::Kind::kJsonSchema, .source = one["schema"].dump()};
    const Stopwatch watch;
    const auto matcher = compiler_.Compile(spec);
    const double seconds = watch.Seconds();
    if (!matcher.ok()) {
      List(name, matcher.status().message());
      return;
    }
    compile_seconds_.push_back(seconds);
    if (seconds > kSlow) List(name, fmt::format("compiled in {:.0f} ms", seconds * 1e3));
    bool right = true;
    const OrderedJson tests = one.value("tests", OrderedJson::array());
    for (const OrderedJson& test : tests) {
      const bool has_verdict = test.is_object() && test.contains("data") &&
                               test.contains("valid") && test["valid"].is_boolean();
      if (!has_verdict) continue;
      const bool valid = test["valid"].get<bool>();
      const bool accepted = Judge(matcher->get(), name, Spaced(test["data"]));
      ++instances_;
      if (accepted == valid) continue;
      right = false;
      ++(valid ? valid_refused_ : invalid_accepted_);
      List(name, (valid ? "refuses " : "accepts ") + test["data"].dump());
    }
    right_ += right ? 1 : 0;
  }

  bool Judge(Matcher* matcher, const std::string& name, const std::string& text) {
    const auto tokens = tokenizer_.Encode(text, /*add_special_tokens=*/false);
    if (!tokens.ok()) return false;
    Matcher::StateId state = matcher->start();
    for (const int32_t token : *tokens) {
      const Stopwatch watch;
      const bool allowed = matcher->Allowed(state).Has(token);
      mask_seconds_.push_back(watch.Seconds());
      if (mask_seconds_.back() > kSlow) {
        List(name, fmt::format("mask in {:.0f} ms in {}", mask_seconds_.back() * 1e3, text));
      }
      if (!allowed) return false;
      state = matcher->Next(state, token);
    }
    return matcher->Accepts(state);
  }

  void List(const std::string& name, const std::string& what) const {
    if (list_) std::printf("%s: %s\n", name.c_str(), what.substr(0, 300).c_str());
  }

  static void AddTimes(const std::string& name, const std::vector<double>& seconds, double unit,
                       Table* table) {
    const auto text = [&](double value) { return fmt::format("{:.2f}", value * unit); };
    table->Add({name, std::to_string(seconds.size()), text(Mean(seconds)),
                text(Percentile(seconds, 0.5)), text(Percentile(seconds, 0.99)),
                text(Percentile(seconds, 1))});
  }
  static Json TimesOf(const std::vector<double>& seconds, double unit) {
    return {{"mean", Mean(seconds) * unit},
            {"p50", Percentile(seconds, 0.5) * unit},
            {"p99", Percentile(seconds, 0.99) * unit},
            {"most", Percentile(seconds, 1) * unit}};
  }

  const Tokenizer& tokenizer_;
  GrammarCompiler compiler_;
  bool list_;
  int schemas_ = 0;
  int right_ = 0;
  int instances_ = 0;
  int valid_refused_ = 0;
  int invalid_accepted_ = 0;
  std::vector<double> compile_seconds_;
  std::vector<double> mask_seconds_;
};

Result<std::vector<std::string>> JsonFiles(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (path == kSuite && !IsDirectory(path)) {
      return InvalidArgument(
          "{} is missing: install the Debian package json-schema-test-suite, or "
          "give --schemas",
          path);
    }
    if (!IsDirectory(path)) {
      files.push_back(path);
      continue;
    }
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    }
    if (error) return InvalidArgument("{}: {}", path, error.message());
  }
  std::ranges::sort(files);
  return files;
}

Result<int> BenchGrammar(const Config& config, const GrammarOptions& options) {
  std::string dir = config.model;
  if (dir.empty()) {
    TALON_ASSIGN_OR_RETURN(dir, BundledModelDir("tiny"));
  }
  TALON_ASSIGN_OR_RETURN(const auto tokenizer, RequireTokenizer(dir));
  TALON_ASSIGN_OR_RETURN(const auto files, JsonFiles(options.schemas));
  GrammarBench bench(tokenizer.get(), options.list);
  for (const std::string& file : files) TALON_RETURN_IF_ERROR(bench.AddFile(file));
  std::printf("vocabulary %d, one core\n%s", tokenizer->vocab_size(), bench.ToString().c_str());
  TALON_RETURN_IF_ERROR(SaveJson(options.json, bench.ToJson()));
  return kExitOk;
}

}  // namespace

void AddBenchGrammar(Command bench, Config* config, CommandBody* body) {
  auto options = std::make_shared<GrammarOptions>();
  Command command =
      bench.AddSubcommand("grammar", "Time of masks and of compiling, and verdicts on instances");
  command
      .AddOption("-m,--model", &config->model,
                 "Directory with the tokenizer.json; none = the bundled model's")
      .TypeName("DIR");
  command
      .AddOption("--schemas", &options->schemas,
                 "JSON files, or folders of them, with a \"schema\" and its \"tests\", or lists of "
                 "such (default: the required tests of draft 7, as Debian installs them)")
      .Delimiter(',')
      .TypeName("PATH,...");
  command.AddFlag("--list", &options->list,
                  "Print what is refused, judged wrongly or takes over 10 ms");
  command.AddOption("--json", &options->json, "Also write the figures to this file");
  SetBody(command, body, [config, options] { return BenchGrammar(*config, *options); });
}

}  // namespace talon
