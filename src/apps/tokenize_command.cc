// `talon tokenize`: prompts in token ids, for builds that have no tokenizer.
#include <algorithm>
#include <cstdio>

#include "apps/commands.h"
#include "apps/common/prompts.h"
#include "base/json.h"
#include "setup/loader.h"

namespace talon {
namespace {

struct TokenizeOptions {
  std::string file;
  std::vector<std::string> only;
  size_t max_tokens = 0;
};

Result<int> Tokenize(const Config& config, const TokenizeOptions& options) {
  std::string dir = config.model;
  if (dir.empty()) {
    TALON_ASSIGN_OR_RETURN(dir, BundledModelDir("tiny"));
  }
  TALON_ASSIGN_OR_RETURN(const auto tokenizer, RequireTokenizer(dir));
  const PromptReader reader{.tokenizer = tokenizer.get(), .vocab_size = tokenizer->vocab_size()};
  TALON_ASSIGN_OR_RETURN(auto prompts, reader.Read(options.file));
  for (const std::string& id : options.only) {
    if (std::ranges::find(prompts, id, &Prompt::id) != prompts.end()) continue;
    return InvalidArgument("--only: no prompt '{}' in {}", id, options.file);
  }
  for (Prompt& prompt : prompts) {
    const bool wanted =
        std::find(options.only.begin(), options.only.end(), prompt.id) != options.only.end();
    if (!wanted && !options.only.empty()) continue;
    if (options.max_tokens > 0 && prompt.tokens.size() > options.max_tokens) {
      prompt.tokens.resize(options.max_tokens);
    }
    const Json line = {{"id", prompt.id}, {"tokens", prompt.tokens}};
    std::printf("%s\n", line.dump().c_str());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return Internal("standard output: cannot write");
  }
  return kExitOk;
}

}  // namespace

void AddTokenizeCommand(Command app, Config* config, CommandBody* body) {
  auto options = std::make_shared<TokenizeOptions>();
  Command command =
      app.AddSubcommand("tokenize", "Print prompts as token ids, for builds without a tokenizer");
  command.AddOption("file", &options->file, "JSON lines with \"prompt\"")
      .Required()
      .TypeName("FILE");
  command
      .AddOption("-m,--model", &config->model,
                 "Directory with the tokenizer.json; none = the bundled model's")
      .TypeName("DIR");
  command.AddOption("--only", &options->only, "Only the prompts with these ids")
      .Delimiter(',')
      .TypeName("ID,...");
  command.AddOption("--max-tokens", &options->max_tokens, "Cut longer prompts; 0 = never")
      .Default(options->max_tokens)
      .TypeName("N");
  command.SetFooter(
      "\nThe lines have \"id\" and \"tokens\", which the commands that read prompts take\n"
      "in place of \"prompt\".\n"
      "  talon tokenize docs.jsonl --only docs-0,docs-6 > tokens.jsonl\n");
  SetBody(command, body, [config, options] { return Tokenize(*config, *options); });
}

}  // namespace talon
