// `talon run`: text from a prompt, streamed, then what happened.
#include <fmt/ranges.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <deque>
#include <iostream>
#include <iterator>
#include <optional>

#include "apps/commands.h"
#include "apps/loader.h"
#include "apps/prompts.h"
#include "apps/run_report.h"
#include "base/file.h"

namespace talon {
namespace {

constexpr const char* kDefaultPrompt = "Once upon a time there was a";

struct RunOptions {
  std::string prompt;
  std::string prompt_file;
  std::string prompt_tokens;
  std::string positional;
  bool json = false;
  bool show_drafts = false;
};

volatile std::sig_atomic_t interrupted = 0;
void OnInterrupt(int) { interrupted = 1; }

Result<std::string> ReadPrompt(const RunOptions& options) {
  if (options.positional == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), {});
  }
  if (!options.positional.empty()) {
    return InvalidArgument("prompt: '{}'; give it with --prompt TEXT, or - for standard input",
                           options.positional);
  }
  if (!options.prompt_file.empty()) return ReadFile(options.prompt_file);
  return options.prompt;
}

void Print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// Prints text as it arrives, or token ids where there is none; with --show-drafts each token's part
// is coloured by origin.
class Printer {
 public:
  Printer(const RunOptions& options, const Tokenizer* tokenizer) : options_(options) {
    if (tokenizer != nullptr) decoder_.emplace(tokenizer, /*skip_special_tokens=*/true);
  }

  void Show(const RequestUpdate& update) {
    if (options_.json) return;
    if (!decoder_) {
      for (const EmittedToken& token : update.tokens) Print(fmt::format(" {}", token.token));
    } else if (options_.show_drafts) {
      ShowColoured(update);
    } else {
      Print(update.text);
    }
    std::fflush(stdout);
  }

 private:
  struct Piece {
    std::string text;
    bool drafted;
  };

  // The update's text may lag behind its tokens; their pieces wait until it arrives.
  void ShowColoured(const RequestUpdate& update) {
    for (const EmittedToken& token : update.tokens) {
      pieces_.push_back({decoder_->Push(token.token), token.drafted});
    }
    if (update.finish != FinishReason::kNone) pieces_.push_back({decoder_->Flush(), false});
    for (size_t left = update.text.size(); left > 0 && !pieces_.empty();) {
      Piece& piece = pieces_.front();
      const std::string shown = piece.text.substr(0, left);
      Print(piece.drafted ? "\033[32m" : "\033[1;33m");
      Print(shown + "\033[0m");
      piece.text.erase(0, shown.size());
      left -= shown.size();
      if (piece.text.empty()) pieces_.pop_front();
    }
  }

  const RunOptions& options_;
  std::optional<StreamDecoder> decoder_;  // none: there is no tokenizer
  std::deque<Piece> pieces_;
};

// Runs one request to its end or to Ctrl-C.
GenerateResult RunToEnd(Engine* engine, RequestId id) {
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
      engine->RunStep();
    }
  }
}

struct PromptInput {
  std::string text;  // as it is shown
  std::vector<int32_t> tokens;
};

// The prompt in tokens, which need no tokenizer.
Result<PromptInput> TokenPrompt(const LoadedModel& model, const std::string& argument) {
  PromptInput input;
  TALON_ASSIGN_OR_RETURN(input.tokens,
                         ReadPromptTokens(argument, model.target->config().vocab_size));
  if (model.tokenizer != nullptr) {
    input.text = model.tokenizer->Decode(input.tokens, /*skip_special_tokens=*/true);
  } else {
    input.text = fmt::format("{}", fmt::join(input.tokens, " "));
  }
  return input;
}

Result<PromptInput> TextPrompt(const LoadedModel& model, std::string text) {
  TALON_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, RequireTokenizer(model));
  auto tokens = tokenizer->Encode(text, /*add_special_tokens=*/true);
  if (!tokens.ok()) return tokens.status().WithContext("prompt");
  return PromptInput{.text = std::move(text), .tokens = std::move(*tokens)};
}

Result<int> Run(Config config, const RunOptions& options) {
  TALON_ASSIGN_OR_RETURN(const std::string text, ReadPrompt(options));
  if (text.empty()) return InvalidArgument("prompt: empty");
  config.max_sequences = std::min(config.max_sequences, 1);
  TALON_ASSIGN_OR_RETURN(const auto model, LoadModel(config));
  const Tokenizer* tokenizer = model->tokenizer.get();
  TALON_ASSIGN_OR_RETURN(const PromptInput prompt,
                         options.prompt_tokens.empty()
                             ? TextPrompt(*model, text)
                             : TokenPrompt(*model, options.prompt_tokens));
  GenerateRequest request{.prompt = prompt.tokens, .stop = config.sampling.stop};
  TALON_ASSIGN_OR_RETURN(request.sampling, MakeSamplingParams(config.sampling, tokenizer));
  if (model->engine_options.kv_tokens == 0) {  // one request: no more cache than it can use
    model->engine_options.kv_tokens = static_cast<int>(std::min<int64_t>(
        static_cast<int64_t>(request.prompt.size()) + std::max(config.sampling.max_tokens, 0) + 1,
        model->target->config().max_context));
  }
  TALON_ASSIGN_OR_RETURN(const auto engine, MakeEngine(model.get(), config, model->drafter_name));
  Printer printer(options, tokenizer);
  request.on_update = [&printer](const RequestUpdate& update) { printer.Show(update); };
  TALON_ASSIGN_OR_RETURN(const RequestId id, engine->Submit(std::move(request)));
  if (!options.json) Print(prompt.text);
  const GenerateResult result = RunToEnd(engine.get(), id);
  if (options.json) {
    std::printf("%s\n", ReportJson(result, *model, engine.get()).dump(2).c_str());
  } else {
    std::printf("\n");
    std::fflush(stdout);
    std::fprintf(stderr, "\n%s", ReportTable(result, *model, engine.get()).c_str());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return Internal("standard output: cannot write");
  }
  if (result.finish == FinishReason::kError) return result.error;
  return kExitOk;
}

}  // namespace

void AddRunCommand(CLI::App* app, Config* config, CommandBody* body) {
  auto options = std::make_shared<RunOptions>();
  options->prompt = kDefaultPrompt;
  CLI::App* command = app->add_subcommand("run", "Generate text from a prompt");
  CLI::Option* input =
      command->add_option("input", options->positional, "- reads the prompt from standard input");
  input->type_name("");
  CLI::Option* text = command->add_option("--prompt", options->prompt, "Text to continue");
  text->default_str("'" + options->prompt + "'")->excludes(input);
  command->add_option("--prompt-file", options->prompt_file, "File with the text to continue")
      ->type_name("FILE")
      ->excludes(input)
      ->excludes(text);
  command
      ->add_option("--prompt-tokens", options->prompt_tokens,
                   "Token ids to continue, separated by commas, or @FILE: the same in a file, or "
                   "JSON lines with \"tokens\", of which the first counts")
      ->type_name("N,...")
      ->excludes(input)
      ->excludes(text)
      ->excludes("--prompt-file");
  command->add_flag("--json", options->json, "Print one JSON object instead of text and table");
  command->add_flag("--show-drafts", options->show_drafts,
                    "Colour the text: green = drafted and accepted, yellow = the model's own");
  AddSettings(command, config, kModelSettings | kSamplingSettings | kSpeculativeSettings);
  command->footer(
      "\nExamples:\n"
      "  talon run --prompt 'Call me' --max-tokens 200\n"
      "  talon run --prompt-file chapter.txt --temperature 0.8 --top-p 0.95 --seed 7\n"
      "  echo 'The sea was' | talon run - --json\n"
      "  talon run --speculative-algorithm NGRAM --show-drafts\n");
  SetBody(command, body, [config, options] { return Run(*config, *options); });
}

}  // namespace talon
