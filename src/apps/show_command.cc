// `talon show`: one answer with its drafts, then what they were worth, measured right here.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <sstream>

#include "apps/bench/bench.h"
#include "apps/commands.h"
#include "apps/common/table.h"
#include "apps/common/text_pieces.h"
#include "apps/run_remote.h"
#include "base/json.h"
#include "setup/chat.h"
#include "setup/loader.h"
#include "setup/wrap_text.h"
#include "text/chat_options.h"

namespace talon {
namespace {

constexpr int kRepeats = 5;  // runs of each way; the median counts
constexpr size_t kWidth = 80;
constexpr const char* kPrompt =
    "Extract the name, age, city, job, email and phone as JSON.\n\n"
    "Mara Holm is 34 years old and lives in Oslo. Mara works as a teacher. Mara can be reached at "
    "mara@garden.org and has the phone number 555-0134.";

struct ShowOptions {
  std::string prompt = kPrompt;
  bool colours = false;
};

// The model, and the one request that is answered again and again.
struct Show {
  Config config;
  std::unique_ptr<LoadedModel> model;
  GenerateRequest request;
};

Result<Show> Load(const Config& config, const ShowOptions& options) {
  Show show{.config = config};
  show.config.max_sequences = 1;
  show.config.enable_prefix_cache = false;  // the prompt is run again and again
  TALON_ASSIGN_OR_RETURN(show.model, LoadTarget(show.config));
  const Tokenizer* tokenizer = show.model->tokenizer.get();
  TALON_ASSIGN_OR_RETURN(const Chat chat, RequireChat(config.serve, *show.model));
  TALON_ASSIGN_OR_RETURN(SamplingParams sampling, MakeSamplingParams(config.sampling, tokenizer));
  const OrderedJson messages = {{{"role", "user"}, {"content", options.prompt}}};
  TALON_ASSIGN_OR_RETURN(show.request, ChatRequest(chat, *tokenizer, messages, sampling, {}));
  show.request.stop = config.sampling.stop;
  if (show.model->engine_options.kv_tokens == 0) {
    const auto prompt = static_cast<int64_t>(show.request.prompt.size());
    show.model->engine_options.kv_tokens =
        KvTokensFor(*show.model, prompt + config.sampling.max_tokens + 1);
  }
  return show;
}

// An answer by a fresh engine, which has learnt nothing from the ones before.
Result<GenerateResult> Answer(Show* show, const DrafterList& drafters,
                              const std::function<void(const RequestUpdate&)>& on_update) {
  TALON_ASSIGN_OR_RETURN(const auto engine, MakeEngine(show->model.get(), show->config, drafters));
  GenerateRequest request = show->request;
  request.on_update = on_update;
  TALON_ASSIGN_OR_RETURN(GenerateResult result, engine->Generate(std::move(request)));
  if (result.finish == FinishReason::kError) return result.error;
  return result;
}

// What one way of decoding gave.
struct Way {
  GenerateResult result;        // the first
  std::vector<double> seconds;  // times of all runs

  void Add(const GenerateResult& more) {
    if (seconds.empty()) result = more;
    seconds.push_back(more.stats.decode_seconds);
  }
  double TokensPerSecond() const {
    return static_cast<double>(result.tokens.size()) / std::max(Median(seconds), 1e-9);
  }
  // Tokens of the answer that were drafts. RequestStats::accepted also has those after its end.
  int64_t NumDrafted() const {
    return std::ranges::count(result.tokens, true, &EmittedToken::drafted);
  }
};

std::string Bold(const std::string& text, bool colours) {
  return colours ? "\033[1m" + text + "\033[0m" : text;
}

// Each line of the prompt, wrapped; the first one after a mark.
std::string Quoted(const std::string& prompt) {
  std::string quoted;
  std::istringstream lines(prompt);
  for (std::string line; std::getline(lines, line);) {
    quoted += (quoted.empty() ? "> " : "\n") + WrapText(line, kWidth);
  }
  return quoted;
}

// Three lines: tokens per pass, speed, what to do next.
void PrintEnd(const Way& drafted, const Way& plain, const ShowOptions& options) {
  const bool same = drafted.result.TokenIds() == plain.result.TokenIds();
  const auto line = [&](const std::string& bold, const std::string& rest) {
    std::printf("  %s %s\n", Bold(bold, options.colours).c_str(), rest.c_str());
  };
  line(fmt::format("{:.2f} tokens", drafted.result.stats.tau()),
       fmt::format("per pass of the model: {} of {} tokens were drafted{}", drafted.NumDrafted(),
                   drafted.result.tokens.size(), options.colours ? " (\033[32mgreen\033[0m)" : ""));
  line(fmt::format("{:.2f}x", drafted.TokensPerSecond() / plain.TokensPerSecond()),
       fmt::format("the speed of plain decoding: {:.0f} against {:.0f} tokens/s, {}",
                   drafted.TokensPerSecond(), plain.TokensPerSecond(),
                   same ? "the same text" : "ANOTHER TEXT"));
  const std::string talon = program_invocation_name;
  line("next:",
       fmt::format("{} chat, or {} serve and http://127.0.0.1:8080 in a browser", talon, talon));
}

Result<int> RunShow(const Config& config, const ShowOptions& options) {
  TALON_RETURN_IF_ERROR(CheckSettings(config, kChatSettings));
  TALON_ASSIGN_OR_RETURN(Show show, Load(config, options));
  const DrafterList drafters = show.model->drafters;
  std::printf("%s\n\n", Bold(Quoted(options.prompt), options.colours).c_str());
  TextPieces pieces(show.model->tokenizer.get(), show.request.prompt, show.request.text);
  Way drafted, plain;
  TALON_ASSIGN_OR_RETURN(
      GenerateResult first, Answer(&show, drafters, [&](const RequestUpdate& update) {
        for (const TextPiece& piece : pieces.Split(update)) {
          std::printf("%s", (options.colours ? Coloured(piece) : piece.text).c_str());
        }
        std::fflush(stdout);
      }));
  std::printf("\n\n");
  drafted.Add(first);
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    TALON_ASSIGN_OR_RETURN(GenerateResult result, Answer(&show, DrafterList(), {}));
    plain.Add(result);
    if (repeat == 0) continue;  // the one that was shown counts, too
    TALON_ASSIGN_OR_RETURN(result, Answer(&show, show.model->drafters, {}));
    drafted.Add(result);
  }
  PrintEnd(drafted, plain, options);
  return drafted.result.TokenIds() == plain.result.TokenIds() ? kExitOk : kExitFailed;
}

}  // namespace

void AddShowCommand(Command app, Config* config, CommandBody* body) {
  auto options = std::make_shared<ShowOptions>();
  Command command = app.AddSubcommand(
      "show", "An answer with its drafts, and what they are worth, measured here");
  command.AddOption("-p,--prompt", &options->prompt, "Message to the model")
      .DefaultText("JSON from a text");
  AddSettings(command, config,
              kModelSettings | kSamplingSettings | kChatSettings | kSpeculativeSettings);
  command.SetFooter(
      "\nThe message is answered with and without drafts, five times each in turn,\n"
      "greedily unless --temperature says otherwise; the medians are compared.\n");
  SetBody(command, body, [config, options]() -> Result<int> {
    if (config->sampling.seed < 0) config->sampling.seed = 1;  // both ways must draw alike
    options->colours = ShowsColours();
    return RunShow(*config, *options);
  });
}

}  // namespace talon
