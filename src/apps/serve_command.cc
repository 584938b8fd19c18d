// `talon serve`: the flags of the HTTP server.
#include "apps/commands.h"
#include "apps/run_server.h"
#include "setup/remote_options.h"

namespace talon {

void AddServeCommand(Command app, Config* config, CommandBody* body) {
  Command command = app.AddSubcommand("serve", "Serve a model through OpenAI's HTTP API");
  AddSettings(
      command, config,
      kServeSettings | kChatSettings | kModelSettings | kSpeculativeSettings | kRemoteSettings);
  command.SetFooter(
      "\nSampling is each request's own, else as the model's generation_config.json\n"
      "suggests, else OpenAI's: temperature 1 ('talon run' is greedy then).\n"
      "\nExamples:\n"
      "  talon serve                                the bundled model, for this machine\n"
      "  talon serve --model DIR --speculative-draft-model-path HEAD --max-sequences 32\n"
      "  talon serve --host 0.0.0.0 --port 80 --api-key-file keys.txt\n"
      "\nThen, from another terminal (or open http://127.0.0.1:8080/ in a browser):\n"
      "  curl -s http://127.0.0.1:8080/v1/completions \\\n"
      "      -H 'Content-Type: application/json' \\\n"
      "      -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 50, \"temperature\": 0}'\n"
      "  curl -sN http://127.0.0.1:8080/v1/chat/completions \\\n"
      "      -H 'Content-Type: application/json' \\\n"
      "      -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"stream\": "
      "true}'\n"
      "  curl -s http://127.0.0.1:8080/metrics\n"
      "\nEach request is a line of the log (--log-level warning: only what goes wrong).\n"
      "Ctrl-C or SIGTERM ends it after the requests on their way; a second one at once.\n");
  SetBody(command, body, [config, command]() -> Result<int> {
    TALON_RETURN_IF_ERROR(CheckRemoteMethod(*config));
    if (!config->remote.target_address.empty()) {
      return InvalidArgument(
          "target_address: the server's model runs here; its drafts may come "
          "from elsewhere (--draft-address)");
    }
    TALON_RETURN_IF_ERROR(CheckIgnoredFlags(*config, GivenTo(command)));
    if (command.Count("--api-key") > 0 && config->serve.api_key.empty()) {
      return InvalidArgument("api_key: is empty; without the flag no key is needed");
    }
    if (config->log_level == "auto") config->log_level = "info";
    return RunServer(*config);
  });
}

}  // namespace talon
