#include "apps/chat/chat_shell.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/nearest_name.h"

namespace talon {
namespace {

constexpr std::string_view kBlock = "\"\"\"";  // begins and ends a message of several lines
constexpr const char* kShellHelp =
    "/drafts        colour drafted text, or stop it\n"
    "/help          this text\n"
    "/quit          leave, as Ctrl-D does\n"
    "/reset         forget the conversation; the system prompt stays\n"
    "/retry         answer the last message again\n"
    "/save FILE     write the conversation to a file, as JSON\n"
    "/stats         what the last answer took\n"
    "/system TEXT   set the system prompt; without a text show it, with - remove it\n"
    "A line that ends with \\ goes on with the next; \"\"\" begins and ends several lines.\n"
    "Ctrl-C stops an answer.";
const std::vector<std::string> kCommands = {"/drafts", "/help", "/quit",  "/reset",
                                            "/retry",  "/save", "/stats", "/system"};

// "/save a b" is the command "/save" with the text "a b".
std::pair<std::string, std::string> SplitCommand(const std::string& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const size_t text = line.find_first_not_of(' ', end);
  return {line.substr(0, end), text == std::string::npos ? "" : line.substr(text)};
}

bool IsBlank(const std::string& text) {
  return text.find_first_not_of(" \t\n") == std::string::npos;
}

}  // namespace

ChatShell::ChatShell(Parts parts, std::string system)
    : parts_(std::move(parts)), system_(std::move(system)) {}

Status ChatShell::Run() {
  if (parts_.interactive) {
    Say(parts_.model->Description());
    Say("/help lists the commands, Ctrl-D leaves.");
  }
  while (const auto message = ReadMessage()) {
    if (IsBlank(*message)) continue;
    parts_.input->Remember(*message);
    if (!message->starts_with('/')) {
      Ask(*message);
    } else if (!RunCommand(*message)) {
      break;
    }
  }
  return parts_.interactive ? OkStatus() : failure_;
}

std::optional<std::string> ChatShell::ReadMessage() {
  auto line = parts_.input->Read("> ");
  if (!line) return std::nullopt;
  if (line->starts_with(kBlock)) {
    std::string text = line->substr(kBlock.size());
    while (!text.ends_with(kBlock)) {
      const auto more = parts_.input->Read(". ");
      if (!more) return text;
      text += (text.empty() ? "" : "\n") + *more;
    }
    text.resize(text.size() - kBlock.size());
    if (text.ends_with('\n')) text.pop_back();
    return text;
  }
  while (line->ends_with('\\')) {
    line->back() = '\n';
    const auto more = parts_.input->Read(". ");
    if (!more) break;
    *line += *more;
  }
  return line;
}

OrderedJson ChatShell::Messages() const {
  OrderedJson messages = OrderedJson::array();
  if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
  for (const OrderedJson& turn : turns_) messages.push_back(turn);
  return messages;
}

// A message without an answer is taken back.
void ChatShell::Ask(const std::string& message) {
  turns_.push_back({{"role", "user"}, {"content", message}});
  const auto show = [this](const TextPiece& piece) {
    parts_.print(parts_.colours ? Coloured(piece) : piece.text);
  };
  parts_.cancelled();  // a Ctrl-C before the answer does not count
  auto end = parts_.model->Answer(Messages(), show, parts_.cancelled);
  if (!end.ok()) {
    turns_.erase(turns_.size() - 1);
    failure_ = end.status();
    if (parts_.interactive) Say("error: " + failure_.message());
    return;
  }
  Say("");
  if (parts_.interactive && (end->stopped || end->at_limit)) {
    Say(end->stopped ? "(stopped)" : "(at the limit of tokens: --max-tokens)");
  }
  turns_.push_back({{"role", "assistant"}, {"content", end->content}});
  last_ = std::move(*end);
}

bool ChatShell::RunCommand(const std::string& line) {
  const auto [command, text] = SplitCommand(line);
  if (command == "/quit" || command == "/exit") return false;
  if (command == "/drafts") {
    parts_.colours = !parts_.colours;
    Say(parts_.colours ? "drafted text is green" : "drafted text is not coloured");
  } else if (command == "/help") {
    Say(kShellHelp);
  } else if (command == "/reset") {
    turns_ = OrderedJson::array();
    last_.reset();
    Say("the conversation is forgotten");
  } else if (command == "/retry") {
    Retry();
  } else if (command == "/save") {
    Save(text);
  } else if (command == "/stats") {
    ShowStats();
  } else if (command == "/system") {
    SetSystem(text);
  } else {
    const std::string nearest = NearestName(command, kCommands);
    Say(fmt::format("unknown command '{}'{}; /help lists them", command,
                    nearest.empty() ? "" : ", did you mean '" + nearest + "'?"));
  }
  return true;
}

void ChatShell::SetSystem(const std::string& text) {
  if (!text.empty()) system_ = text == "-" ? "" : text;
  Say(system_.empty() ? "no system prompt" : "system prompt: " + system_);
}

void ChatShell::Retry() {
  if (turns_.size() < 2) {
    Say("there is no answer yet");
    return;
  }
  const std::string message = turns_[turns_.size() - 2]["content"].get<std::string>();
  turns_.erase(turns_.size() - 1);
  turns_.erase(turns_.size() - 1);
  Ask(message);
}

void ChatShell::ShowStats() {
  if (!last_) {
    Say("there is no answer yet");
    return;
  }
  const RequestStats& stats = last_->stats;
  Say(fmt::format("{} tokens in {} passes: {:.2f} tokens per pass; {} of {} drafts accepted",
                  stats.emitted, stats.passes, stats.tau(), stats.accepted, stats.drafted));
  Say(fmt::format("prompt {} tokens, {} of them cached; {:.0f} tokens/s while decoding",
                  stats.prompt_tokens, stats.cached_tokens,
                  static_cast<double>(stats.emitted) / std::max(stats.decode_seconds, 1e-9)));
}

void ChatShell::Save(const std::string& path) {
  if (path.empty()) {
    Say("/save needs the name of a file");
    return;
  }
  const OrderedJson json = {{"messages", Messages()}};
  const Status status = WriteFile(path, json.dump(2) + "\n");
  Say(status.ok() ? "saved to " + path : "error: " + status.message());
}

}  // namespace talon
