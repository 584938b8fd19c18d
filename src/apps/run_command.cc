// `talon run`: text from a prompt, streamed, then what happened.
#include <fmt/ranges.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <optional>
#include <span>

#include "apps/commands.h"
#include "apps/common/prompts.h"
#include "apps/common/run_report.h"
#include "apps/common/text_pieces.h"
#include "apps/run_remote.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/grammar_compiler.h"
#include "model/files/model_dir.h"
#include "setup/generation_defaults.h"
#include "setup/loader.h"
#include "setup/progress.h"
#include "setup/remote_options.h"

namespace talon {
namespace {

constexpr const char* kDefaultPrompt = "Once upon a time there was a";
constexpr size_t kLongestEcho = 1000;  // bytes of a prompt that is shown without --echo

struct RunOptions {
  std::string prompt;
  std::string prompt_file;
  std::string prompt_tokens;
  std::string json_schema;  // a file or the text itself
  std::string grammar;      // the same
  std::string regex;
  std::string positional;
  bool json = false;
  bool show_drafts = false;
  std::optional<bool> echo;  // none: short prompts only

  bool Echoes(const std::string& text) const {
    return !json && echo.value_or(text.size() <= kLongestEcho);
  }
};

volatile std::sig_atomic_t interrupted = 0;
void OnInterrupt(int) { interrupted = 1; }

// `echo` and editors end a text with a line end that its writer did not mean.
std::string WithoutLastLineEnd(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

Result<std::string> ReadPrompt(const RunOptions& options) {
  if (options.positional == "-") {
    return WithoutLastLineEnd(std::string(std::istreambuf_iterator<char>(std::cin), {}));
  }
  if (IsDirectory(options.positional)) {
    return InvalidArgument("prompt: '{}' is a directory; a model is given with --model",
                           options.positional);
  }
  if (!options.positional.empty()) return options.positional;
  if (options.prompt_file.empty()) return options.prompt;
  TALON_ASSIGN_OR_RETURN(std::string text, ReadFile(options.prompt_file));
  return WithoutLastLineEnd(std::move(text));
}

void Print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// Prints the prompt, then text as it arrives, or token ids where there is none; with --show-drafts
// each token's part is coloured by origin.
class Printer {
 public:
  // The text goes on after `prompt`, the request's.
  Printer(const RunOptions& options, const Tokenizer* tokenizer, const std::string& prompt,
          const GenerateRequest& request)
      : options_(options), prompt_(options.Echoes(prompt) ? prompt : "") {
    if (tokenizer != nullptr) pieces_.emplace(tokenizer, request.prompt, request.ShownText());
  }

  void Show(const RequestUpdate& update) {
    if (options_.json) return;
    Print(std::exchange(prompt_, ""));
    if (!pieces_) {
      for (const EmittedToken& token : update.tokens) Print(fmt::format(" {}", token.token));
    } else if (options_.show_drafts) {
      ShowColoured(update);
    } else {
      Print(update.text);
    }
    std::fflush(stdout);
  }

 private:
  void ShowColoured(const RequestUpdate& update) {
    for (const TextPiece& piece : pieces_->Split(update)) {
      Print((piece.drafted ? "\033[32m" : "\033[1;33m") + piece.text + "\033[0m");
    }
  }

  const RunOptions& options_;
  std::string prompt_;                // to be shown before the text
  std::optional<TextPieces> pieces_;  // none: there is no tokenizer
};

// Shows on a terminal how much of a prompt is computed, if that takes several steps.
class PromptProgress {
 public:
  PromptProgress(size_t tokens, int chunk) : tokens_(tokens) {
    if (tokens > static_cast<size_t>(chunk)) line_.emplace();
  }

  void Show(const Engine& engine) {
    const auto sequences = engine.Sequences();
    if (!line_ || sequences.empty()) return;
    const int done = sequences.front()->committed_len;
    line_->Show(fmt::format("prompt: {} of {} tokens, {:.0f} tokens/s", done, tokens_,
                            done / std::max(watch_.Seconds(), 1e-9)));
  }
  void End() { line_.reset(); }

 private:
  size_t tokens_;
  Stopwatch watch_;
  std::optional<StatusLine> line_;  // none: nothing is shown
};

// Runs one request to its end or to Ctrl-C.
GenerateResult RunToEnd(Engine* engine, RequestId id, PromptProgress* progress) {
  interrupted = 0;
  auto* previous = std::signal(SIGINT, OnInterrupt);
  for (;;) {
    auto result = engine->Take(id);
    if (result.ok()) {
      std::signal(SIGINT, previous);
      return std::move(*result);
    }
    if (interrupted != 0) {
      engine->Cancel(id);
    } else {
      progress->Show(*engine);
      engine->RunStep();
    }
  }
}

struct PromptInput {
  std::string text;  // as it is shown
  std::vector<int32_t> tokens;
};

// What reads a prompt: a model's tokenizer, or its vocabulary alone.
struct PromptTaker {
  const std::string& model;
  const Tokenizer* tokenizer;  // null: none
  int vocab_size;
};

// The prompt in tokens, which need no tokenizer.
Result<PromptInput> TokenPrompt(const PromptTaker& taker, const std::string& argument) {
  PromptInput input;
  TALON_ASSIGN_OR_RETURN(input.tokens, ReadPromptTokens(argument, taker.vocab_size));
  if (taker.tokenizer != nullptr) {
    input.text = taker.tokenizer->Decode(input.tokens, /*skip_special_tokens=*/true);
  } else {
    input.text = fmt::format("{}", fmt::join(input.tokens, " "));
  }
  return input;
}

Result<PromptInput> TextPrompt(const PromptTaker& taker, std::string text) {
  if (taker.tokenizer == nullptr) {
    TALON_RETURN_IF_ERROR(Tokenizer::Supported());
    return MissingTokenizer(taker.model);
  }
  auto tokens = taker.tokenizer->Encode(text, /*add_special_tokens=*/true);
  if (!tokens.ok()) return tokens.status().WithContext("prompt");
  return PromptInput{.text = std::move(text), .tokens = std::move(*tokens)};
}

Result<PromptInput> TakePrompt(const PromptTaker& taker, const RunOptions& options,
                               const std::string& text) {
  return options.prompt_tokens.empty() ? TextPrompt(taker, text)
                                       : TokenPrompt(taker, options.prompt_tokens);
}

// The end of a run: its report, which a failure before the first token has none of, and its exit
// code.
Result<int> Finish(const GenerateResult& result, const std::string& report, bool json) {
  const bool nothing = result.finish == FinishReason::kError && result.tokens.empty();
  if (json) {
    std::printf("%s\n", report.c_str());
  } else {
    std::printf("\n");
    std::fflush(stdout);
    if (!nothing) std::fprintf(stderr, "\n%s", report.c_str());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return Internal("standard output: cannot write");
  }
  if (result.finish == FinishReason::kError) return result.error;
  return result.finish == FinishReason::kTimeout ? kExitFailed : kExitOk;
}

std::string RemoteReport(const GenerateResult& result, const RemoteModel& model, bool json) {
  if (json) {
    Json out = GenerationJson(result);
    out["model"] = model.name;
    out["target"] = model.address;
    out["drafter"] = model.drafter_name;
    out["metrics"] = CountersJson(model.metrics);
    return out.dump(2);
  }
  Table table({});
  table.Add({"model", fmt::format("{} at {}", model.name, model.address)});
  AddGeneration(result, &table);
  if (model.drafter_name != "NONE") {
    AddAcceptance(result.stats, model.drafter_name, &table);
    const double seconds = std::max(result.stats.decode_seconds, 1e-9);
    table.Add({"drafting", fmt::format("{:.0f}% of the time was waiting for drafts",
                                       100 * result.stats.draft_seconds / seconds)});
    table.Add({"ahead", fmt::format("{} hits, {} misses",
                                    model.metrics.Get(Counter::kRemoteSpeculation, "hit"),
                                    model.metrics.Get(Counter::kRemoteSpeculation, "miss"))});
  }
  return table.ToString(/*all_left=*/true);
}

bool IsSchemaText(std::string_view value) {
  const size_t first = value.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && value[first] == '{';
}

bool IsGrammarText(std::string_view value) { return value.find("::=") != std::string_view::npos; }

// What a flag names a file for, or says itself. `form` is what marks a text.
Result<std::string> TextOrFile(const std::string& value, bool is_text, std::string_view flag,
                               std::string_view form) {
  if (is_text) return value;
  auto text = ReadFile(value);
  if (text.ok()) return text;
  return InvalidArgument("{}: {} (a FILE, or the text itself, which {})", flag,
                         text.status().message(), form);
}

// What the text must match, if anything. The compiler must outlive the request.
Status SetGrammar(const RunOptions& options, const GrammarCompiler& grammars,
                  GenerateRequest* request) {
  GrammarSpec spec;
  if (!options.regex.empty()) {
    spec = {.kind = GrammarSpec::Kind::kRegex, .source = options.regex};
  } else if (!options.json_schema.empty()) {
    spec.kind = GrammarSpec::Kind::kJsonSchema;
    TALON_ASSIGN_OR_RETURN(spec.source,
                           TextOrFile(options.json_schema, IsSchemaText(options.json_schema),
                                      "json_schema", "begins with {"));
  } else if (!options.grammar.empty()) {
    spec.kind = GrammarSpec::Kind::kGbnf;
    TALON_ASSIGN_OR_RETURN(spec.source, TextOrFile(options.grammar, IsGrammarText(options.grammar),
                                                   "grammar", "has rules: root ::= ..."));
  }
  TALON_ASSIGN_OR_RETURN(request->sampling.grammar, grammars.Compile(spec));
  return OkStatus();
}

// With the target elsewhere.
Result<int> RunRemotely(const Config& config, const RunOptions& options, const std::string& text) {
  TALON_RETURN_IF_ERROR(ApplyLogSettings(config));
  interrupted = 0;
  TALON_ASSIGN_OR_RETURN(const auto model,
                         OpenRemoteModel(config, [] { return interrupted != 0; }));
  const Tokenizer* tokenizer = model->tokenizer.get();
  TALON_ASSIGN_OR_RETURN(
      const PromptInput prompt,
      TakePrompt({model->name, tokenizer, model->config.vocab_size}, options, text));
  GenerateRequest request{.prompt = prompt.tokens, .stop = config.sampling.stop};
  TALON_ASSIGN_OR_RETURN(request.sampling, MakeSamplingParams(config.sampling, tokenizer));
  const GrammarCompiler grammars(tokenizer);
  TALON_RETURN_IF_ERROR(SetGrammar(options, grammars, &request));
  if (const int most = config.remote.max_output_tokens; most > 0) {
    request.sampling.max_tokens = std::min(request.sampling.max_tokens, most);
  }
  TALON_RETURN_IF_ERROR(model->Check(request));
  Printer printer(options, tokenizer, prompt.text, request);
  request.on_update = [&printer](const RequestUpdate& update) { printer.Show(update); };
  auto* previous = std::signal(SIGINT, OnInterrupt);
  const GenerateResult result = model->Generate(std::move(request));
  std::signal(SIGINT, previous);
  return Finish(result, RemoteReport(result, *model, options.json), options.json);
}

Result<int> Run(Config config, const RunOptions& options) {
  TALON_ASSIGN_OR_RETURN(const std::string text, ReadPrompt(options));
  if (text.empty()) return InvalidArgument("prompt: empty");
  if (!config.remote.target_address.empty()) return RunRemotely(config, options, text);
  config.max_sequences = std::min(config.max_sequences, 1);
  TALON_ASSIGN_OR_RETURN(const auto model, LoadTarget(config));
  const Tokenizer* tokenizer = model->tokenizer.get();
  TALON_ASSIGN_OR_RETURN(
      const PromptInput prompt,
      TakePrompt({model->name, tokenizer, model->target->config().vocab_size}, options, text));
  GenerateRequest request{.prompt = prompt.tokens, .stop = config.sampling.stop};
  TALON_ASSIGN_OR_RETURN(request.sampling, MakeSamplingParams(config.sampling, tokenizer));
  const GrammarCompiler grammars(tokenizer);
  TALON_RETURN_IF_ERROR(SetGrammar(options, grammars, &request));
  if (model->engine_options.kv_tokens == 0) {  // one request: no more cache than it can use
    const int64_t longest =
        static_cast<int64_t>(request.prompt.size()) + std::max(config.sampling.max_tokens, 0) + 1;
    model->engine_options.kv_tokens = KvTokensFor(*model, longest);
  }
  TALON_ASSIGN_OR_RETURN(const auto engine, MakeEngine(model.get(), config, model->drafters));
  Printer printer(options, tokenizer, prompt.text, request);
  PromptProgress progress(prompt.tokens.size(), model->engine_options.prefill_chunk);
  request.on_update = [&](const RequestUpdate& update) {
    progress.End();
    printer.Show(update);
  };
  request.age = {};  // loading the model is not the prompt's time
  TALON_ASSIGN_OR_RETURN(const RequestId id, engine->Submit(std::move(request)));
  const GenerateResult result = RunToEnd(engine.get(), id, &progress);
  const std::string report = options.json ? ReportJson(result, *model, engine.get()).dump(2)
                                          : ReportTable(result, *model, engine.get());
  return Finish(result, report, options.json);
}

using SharedOptions = std::shared_ptr<RunOptions>;

// Where the prompt comes from, and whether it is shown.
void AddPromptOptions(Command command, const SharedOptions& options) {
  Option input = command.AddOption("text", &options->positional,
                                   "Text to continue, as --prompt; - reads it from standard input");
  input.TypeName("");
  Option text = command.AddOption("-p,--prompt", &options->prompt, "Text to continue");
  text.DefaultText("'" + options->prompt + "'").Excludes(input);
  Option file =
      command.AddOption("--prompt-file", &options->prompt_file, "File with the text to continue");
  file.TypeName("FILE").Excludes(input).Excludes(text);
  command
      .AddOption("--prompt-tokens", &options->prompt_tokens,
                 "Token ids to continue, separated by commas, or @FILE: the same in a file, or "
                 "JSON lines with \"tokens\", of which the first counts")
      .TypeName("N,...")
      .Excludes(input)
      .Excludes(text)
      .Excludes(file);
  command
      .AddParsed(
          "--echo",
          [options](const std::string& value) {
            options->echo = value != "false";
            return value.empty() || value == "true" || value == "false" ? ""
                                                                        : "must be true or false";
          },
          fmt::format("Show the prompt before the text (default: if it has at most {} bytes)",
                      kLongestEcho))
      .TypeName("BOOL")
      .OptionalValue();
}

// What the text must match.
void AddGrammarOptions(Command command, const SharedOptions& options) {
  Option schema =
      command.AddOption("--json-schema", &options->json_schema,
                        "JSON schema that the text must match: {...}, or a file with it");
  schema.TypeName("FILE");
  Option regex = command.AddOption("--regex", &options->regex,
                                   "Regular expression that the whole text must match");
  regex.Excludes(schema);
  command
      .AddOption("--grammar", &options->grammar,
                 "Grammar (GBNF) for the text: root ::= ..., or a file with it")
      .TypeName("FILE")
      .Excludes(schema)
      .Excludes(regex);
}

}  // namespace

void AddRunCommand(Command app, Config* config, CommandBody* body) {
  auto options = std::make_shared<RunOptions>();
  options->prompt = kDefaultPrompt;
  Command command = app.AddSubcommand("run", "Generate text from a prompt");
  AddPromptOptions(command, options);
  AddGrammarOptions(command, options);
  command.AddFlag("--json", &options->json, "Print one JSON object instead of text and table");
  command.AddFlag("--show-drafts", &options->show_drafts,
                  "Colour the text: green = drafted and accepted, yellow = the model's own");
  AddSettings(command, config,
              kModelSettings | kSamplingSettings | kSpeculativeSettings | kRemoteSettings |
                  kTargetSettings);
  command.SetFooter(
      "\nExamples:\n"
      "  talon run 'Call me' --max-tokens 200\n"
      "  talon run --prompt-file chapter.txt --temperature 0.8 --top-p 0.95 --seed 7\n"
      "  echo 'The sea was' | talon run - --json\n"
      "  talon run --show-drafts\n"
      "  talon run --target-address 127.0.0.1:50052 --draft-address 127.0.0.1:50051\n");
  SetBody(command, body, [config, options, command]() -> Result<int> {
    TALON_RETURN_IF_ERROR(CheckRemoteMethod(*config));
    TALON_RETURN_IF_ERROR(CheckIgnoredFlags(*config, GivenTo(command)));
    if (command.Count("--logprobs") > 0 && !options->json) {
      return InvalidArgument("--logprobs: only --json shows them");
    }
    TALON_RETURN_IF_ERROR(ApplyGenerationDefaults(GivenTo(command), config));
    return Run(*config, *options);
  });
}

}  // namespace talon
