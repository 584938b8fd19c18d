// `talon check`: compares a model and its tokenizer with reference files, a line a case.
#include <algorithm>
#include <cstdio>

#include "apps/block_check.h"
#include "apps/commands.h"
#include "apps/eagle_check.h"
#include "apps/run_remote.h"
#include "base/file.h"
#include "base/json.h"
#include "model/files/golden.h"
#include "model/files/model_dir.h"
#include "model/heads/draft_kind.h"
#include "model/perplexity.h"
#include "setup/loader.h"

namespace talon {
namespace {

constexpr int kGoldenTreeNodes = 256;  // largest tree of a golden file

struct CheckOptions {
  std::string draft;  // a head, which `golden` is then about
  std::string golden;
  std::string tokenizer_golden;
  std::string skipped;     // why there is no check of the tokenizer
  std::string perplexity;  // a text
  std::string against;     // the model before it was quantised
  float tolerance = 2e-4f;
};

struct Tally {
  int passed = 0;
  int failed = 0;
  void Count(const std::string& name, bool ok, const std::string& detail) {
    std::printf("%-4s  %-24s  %s\n", ok ? "ok" : "FAIL", name.c_str(), detail.c_str());
    ++(ok ? passed : failed);
  }
};

// "3 of 5 ids" or the first difference.
std::string Difference(const Json& expected, const std::vector<int32_t>& got) {
  const auto want = expected.get<std::vector<int32_t>>();
  size_t i = 0;
  while (i < want.size() && i < got.size() && want[i] == got[i]) ++i;
  if (i == want.size() && i == got.size()) return "";
  return fmt::format("differs at {} of {} ids (got {})", i, want.size(), got.size());
}

// One entry: {text, ids, ids_bos, decoded}.
std::string CheckEntry(const Tokenizer& tokenizer, const Json& entry) {
  const auto text = entry.at("text").get<std::string>();
  for (const auto& [key, special] : {std::pair{"ids", false}, std::pair{"ids_bos", true}}) {
    const auto ids = tokenizer.Encode(text, special);
    if (!ids.ok()) return ids.status().message();
    const std::string difference = Difference(entry.at(key), *ids);
    if (!difference.empty()) return fmt::format("{} {}", key, difference);
  }
  const auto ids = entry.at("ids").get<std::vector<int32_t>>();
  if (tokenizer.Decode(ids, false) != entry.at("decoded").get<std::string>()) {
    return "decoded text differs";
  }
  return "";
}

Status CheckTokenizer(const Tokenizer& tokenizer, const std::string& path, Tally* tally) {
  TALON_ASSIGN_OR_RETURN(const Json cases, ReadJsonFile(path));
  if (!cases.is_array()) return InvalidArgument("{}: not a list of cases", path);
  for (size_t i = 0; i < cases.size(); ++i) {
    std::string difference;
    try {
      difference = CheckEntry(tokenizer, cases[i]);
    } catch (const Json::exception& error) {
      return InvalidArgument("{}: case {}: {}", path, i, error.what());
    }
    tally->Count(fmt::format("tokenizer {}", i), difference.empty(),
                 difference.empty() ? cases[i]["text"].dump().substr(0, 60) : difference);
  }
  return OkStatus();
}

// What was not named is taken from beside the model or, with --draft, the head.
Status FillDefaults(Config* config, CheckOptions* options) {
  if (config->model.empty()) {
    TALON_ASSIGN_OR_RETURN(config->model, BundledModelDir("tiny"));
  }
  if (!options->draft.empty() && !IsDirectory(options->draft)) {
    return NotFound("--draft: {}: no such directory", options->draft);
  }
  const std::string& dir = options->draft.empty() ? config->model : options->draft;
  const std::string beside = dir + "/golden.safetensors";
  const std::string tokens_beside = config->model + "/tokenizer_golden.json";
  const bool chosen = !options->golden.empty() || !options->tokenizer_golden.empty();
  if (!chosen && FileExists(beside)) options->golden = beside;
  if (!chosen && options->draft.empty() && FileExists(tokens_beside)) {
    options->skipped = Tokenizer::Supported().message();
    if (options->skipped.empty()) options->tokenizer_golden = tokens_beside;
  }
  if (!options->draft.empty() && options->golden.empty()) {
    return InvalidArgument("{}: no golden.safetensors in it; name one with --golden", dir);
  }
  if (options->golden.empty() && options->tokenizer_golden.empty()) {
    TALON_RETURN_IF_ERROR(CheckModelDir(config->model));
    return InvalidArgument(
        "{}: no golden.safetensors or tokenizer_golden.json in it; name one with "
        "--golden or --tokenizer-golden",
        config->model);
  }
  return OkStatus();
}

Result<std::vector<GoldenCase>> CheckModel(const Config& config, const CheckOptions& options) {
  TALON_ASSIGN_OR_RETURN(const auto model, LoadTarget(config, "", kGoldenTreeNodes));
  const DType kv_dtype = model->engine_options.kv_dtype;
  if (options.draft.empty()) {
    return CheckGolden(model->target.get(), model->backend.get(), options.golden,
                       {.tolerance = options.tolerance, .kv_dtype = kv_dtype});
  }
  HeadCheckOptions head{.head = options.draft,
                        .golden = options.golden,
                        .tolerance = options.tolerance,
                        .kv_dtype = kv_dtype,
                        .capture_layers = config.speculative.eagle3_capture_layers};
  if (!ParseWeightFormat(config.weights, &head.weights)) {
    return InvalidArgument("weights: '{}', must be {}", config.weights, WeightFormatNames());
  }
  TALON_ASSIGN_OR_RETURN(const DraftKind kind, DraftKindOf(options.draft));
  return IsBlockHead(kind) ? CheckBlockGolden(model->target.get(), model->backend.get(), head)
                           : CheckEagleGolden(model->target.get(), model->backend.get(), head);
}

Result<int> Check(Config config, CheckOptions options) {
  TALON_RETURN_IF_ERROR(FillDefaults(&config, &options));
  Tally tally;
  if (!options.golden.empty()) {
    TALON_ASSIGN_OR_RETURN(const auto cases, CheckModel(config, options));
    for (const GoldenCase& one : cases) tally.Count(one.name, one.passed, one.detail);
  }
  if (!options.tokenizer_golden.empty()) {
    TALON_ASSIGN_OR_RETURN(const auto tokenizer, RequireTokenizer(config.model));
    TALON_RETURN_IF_ERROR(CheckTokenizer(*tokenizer, options.tokenizer_golden, &tally));
  }
  if (!options.skipped.empty()) std::printf("skip  tokenizer: %s\n", options.skipped.c_str());
  std::printf("%d passed, %d failed\n", tally.passed, tally.failed);
  return tally.failed == 0 && tally.passed > 0 ? kExitOk : kExitFailed;
}

// ---- Perplexity ----

struct Scored {
  double perplexity = 0;
  size_t tokens = 0;
};

Result<Scored> Score(const Config& config, const std::string& text) {
  constexpr size_t kMostTokens = 4096;
  TALON_ASSIGN_OR_RETURN(const auto model, LoadTarget(config, "", kPerplexityRows));
  TALON_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, RequireTokenizer(*model));
  TALON_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer->Encode(text, true));
  const auto longest = static_cast<size_t>(model->target->config().max_context);
  tokens.resize(std::min({tokens.size(), kMostTokens, longest}));
  if (tokens.size() < 2) return InvalidArgument("a text of two tokens or more is needed");
  TALON_ASSIGN_OR_RETURN(const double perplexity,
                         Perplexity(model->target.get(), model->backend.get(), tokens,
                                    model->engine_options.kv_dtype));
  return Scored{perplexity, tokens.size()};
}

// The model as the settings say, and as it was: one after the other, as both may not fit.
Result<int> ComparePerplexity(Config config, const CheckOptions& options) {
  if (config.model.empty()) {
    TALON_ASSIGN_OR_RETURN(config.model, BundledModelDir("tiny"));
  }
  TALON_ASSIGN_OR_RETURN(const std::string text, ReadFile(options.perplexity));
  TALON_ASSIGN_OR_RETURN(const Scored scored, Score(config, text));
  std::printf("%-10s  %s, the first %zu tokens\n", "text", options.perplexity.c_str(),
              scored.tokens);
  std::printf("%-10s  %8.4f  weights %s, activations %s, KV %s\n", "perplexity", scored.perplexity,
              config.weights.c_str(), config.activations.c_str(), config.kv_dtype.c_str());
  std::fflush(stdout);
  config.weights = config.kv_dtype = "f32";
  config.activations = "auto";
  if (!options.against.empty()) config.model = options.against;
  TALON_ASSIGN_OR_RETURN(const Scored exact, Score(config, text));
  if (exact.tokens != scored.tokens) {
    return InvalidArgument("--against: {} has another tokenizer: {} tokens instead of {}",
                           options.against, exact.tokens, scored.tokens);
  }
  std::printf("%-10s  %8.4f  weights f32, KV f32, %s\n", "against", exact.perplexity,
              options.against.empty() ? "the same model" : options.against.c_str());
  std::printf("%-10s  %+7.2f%%\n", "change", 100 * (scored.perplexity / exact.perplexity - 1));
  return kExitOk;
}

}  // namespace

void AddCheckCommand(Command app, Config* config, CommandBody* body) {
  auto options = std::make_shared<CheckOptions>();
  Command command =
      app.AddSubcommand("check", "Compare a model with golden references, a line a case");
  command
      .AddOption("--golden", &options->golden,
                 "Reference logits, greedy text and trees; none given = golden.safetensors and "
                 "tokenizer_golden.json in the model's directory")
      .TypeName("FILE");
  command
      .AddOption(
          "--draft", &options->draft,
          "A head of the model (EAGLE, EAGLE-3 or a block head); --golden is then its reference, "
          "golden.safetensors in its directory unless given")
      .TypeName("DIR");
  command.AddOption("--tokenizer-golden", &options->tokenizer_golden, "Reference encodings")
      .TypeName("FILE");
  command.AddOption("--tolerance", &options->tolerance, "Largest allowed logit error")
      .Default(options->tolerance);
  command
      .AddOption("--perplexity", &options->perplexity,
                 "Compare nothing else: the perplexity of this text with the settings given, and "
                 "in f32")
      .TypeName("FILE");
  command
      .AddOption("--against", &options->against,
                 "The model in f32 for --perplexity, before it was quantised; none given = the "
                 "same model")
      .TypeName("DIR");
  AddSettings(command, config, kModelSettings);
  command.SetFooter(
      "\nComputes in f32 with an f32 KV cache unless flags say otherwise. Exit code 0\n"
      "only if all pass.\n"
      "  talon check --model models/tiny\n"
      "  talon check --model DIR --golden FILE.safetensors\n"
      "  talon check --model DIR --draft DIR/eagle3\n"
      "  talon check --model DIR --weights int4 --perplexity book.txt\n");
  SetBody(command, body, [config, options, command]() -> Result<int> {
    if (!options->perplexity.empty()) return ComparePerplexity(*config, *options);
    if (!options->against.empty()) return InvalidArgument("--against is for --perplexity");
    if (command.Count("--weights") == 0) config->weights = "f32";
    if (command.Count("--kv-dtype") == 0) config->kv_dtype = "f32";
    return Check(*config, *options);
  });
}

}  // namespace talon
