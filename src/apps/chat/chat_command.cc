// `talon chat`: a conversation in the terminal, with a model here or behind a server.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "apps/chat/chat_model.h"
#include "apps/chat/chat_shell.h"
#include "apps/chat/line_input.h"
#include "apps/commands.h"
#include "apps/common/text_pieces.h"
#include "base/file.h"
#include "setup/generation_defaults.h"

namespace talon {
namespace {

constexpr int kMaxTokens = 1024;  // length of an answer, unless the user says otherwise
constexpr const char* kApiKeyVariable = "TALON_API_KEY";

struct ChatFlags {
  std::string url;
  std::string api_key;
  std::string system;
};

volatile std::sig_atomic_t interrupted = 0;
void OnInterrupt(int) { interrupted = 1; }

// Ctrl-C ends a wait for input, too: calls are not restarted.
void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
}

// Whether a Ctrl-C has come since the last question.
bool TakeInterrupt() {
  const bool was = interrupted != 0;
  interrupted = 0;
  return was;
}

Result<std::unique_ptr<ChatModel>> OpenModel(const Config& config, const ChatFlags& flags,
                                             const SettingGiven& given) {
  if (flags.url.empty()) return OpenLocalChat(config);
  const char* variable = std::getenv(kApiKeyVariable);
  std::string key = flags.api_key;
  if (key.empty() && variable != nullptr) key = variable;
  return OpenServerChat({.url = flags.url, .api_key = key, .config = config, .given = given});
}

Result<int> RunChat(const Config& config, const ChatFlags& flags, const SettingGiven& given) {
  TALON_RETURN_IF_ERROR(CheckSettings(config, kChatSettings | kSamplingSettings));
  TALON_ASSIGN_OR_RETURN(const auto model, OpenModel(config, flags, given));
  const bool interactive = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  if (interactive) CatchInterrupts();
  const auto input = interactive ? NewTerminalInput() : NewPlainInput();
  ChatShell shell({.model = model.get(),
                   .input = input.get(),
                   .print =
                       [](std::string_view text) {
                         std::fwrite(text.data(), 1, text.size(), stdout);
                         std::fflush(stdout);
                       },
                   .cancelled = TakeInterrupt,
                   .interactive = interactive,
                   .colours = ShowsColours()},
                  flags.system);
  TALON_RETURN_IF_ERROR(shell.Run());
  return kExitOk;
}

// Flags that mean nothing where the model is behind a server.
Status CheckServerFlags(Command command) {
  Config names;
  for (const Setting& setting :
       SettingsOf(&names, kModelSettings | kChatSettings | kSpeculativeSettings)) {
    if (command.Count(setting.flag) == 0) continue;
    return InvalidArgument("{}: is the server's to say, not with --url", setting.flag);
  }
  return OkStatus();
}

}  // namespace

void AddChatCommand(Command app, Config* config, CommandBody* body) {
  auto flags = std::make_shared<ChatFlags>();
  Command command = app.AddSubcommand("chat", "Talk with a model in the terminal");
  command
      .AddOption(
          "--url", &flags->url,
          "Talk with the model of this server (OpenAI's API), such as http://127.0.0.1:8080; "
          "none = the model runs here")
      .TypeName("URL");
  command
      .AddOption("--api-key", &flags->api_key,
                 "The server's key; none = that of the environment variable TALON_API_KEY")
      .TypeName("KEY");
  command.AddOption("--system", &flags->system, "System prompt");
  AddSettings(command, config,
              kModelSettings | kSamplingSettings | kChatSettings | kSpeculativeSettings);
  command.SetFooter(
      "\nAnswers have 1024 tokens at most unless --max-tokens says otherwise. Drafted\n"
      "text is green. /help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves.\n"
      "Without a terminal each line of standard input is a message.\n"
      "\nExamples:\n"
      "  talon chat --system 'Answer in one sentence.'\n"
      "  talon chat --url http://127.0.0.1:8080\n"
      "  echo 'What is 7 + 5?' | talon chat\n");
  SetBody(command, body, [config, flags, command]() -> Result<int> {
    const auto given = [config, command](const std::string& key) {
      std::string flag = "--" + key;
      std::replace(flag.begin(), flag.end(), '_', '-');
      return command.Count(flag) > 0 || std::ranges::count(config->file_keys, key) > 0;
    };
    if (flags->url.empty()) {
      TALON_RETURN_IF_ERROR(ApplyGenerationDefaults(GivenTo(command), config));
    } else {
      TALON_RETURN_IF_ERROR(CheckServerFlags(command));
    }
    if (!given("max_tokens")) config->sampling.max_tokens = kMaxTokens;
    return RunChat(*config, *flags, given);
  });
}

}  // namespace talon
