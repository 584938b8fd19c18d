#include "apps/chat/chat_shell.h"

#include <gtest/gtest.h>

#include <deque>

#include "base/file.h"

namespace talon {
namespace {

// Answers with the last message in brackets, its first half drafted; "fail" fails.
class EchoModel : public ChatModel {
 public:
  std::string Description() const override { return "echo"; }
  Result<ChatAnswerEnd> Answer(const OrderedJson& messages,
                               const std::function<void(const TextPiece&)>& show,
                               const std::function<bool()>& cancelled) override {
    asked.push_back(messages);
    const std::string text = messages.back()["content"].get<std::string>();
    if (text == "fail") return Unavailable("no answer");
    show({"[" + text, true});
    if (cancelled()) return ChatAnswerEnd{.content = "[" + text, .stopped = true};
    show({"]", false});
    ChatAnswerEnd end{.content = "[" + text + "]"};
    end.stats.emitted = 6;
    end.stats.passes = 4;
    return end;
  }
  std::vector<OrderedJson> asked;
};

class FixedInput : public LineInput {
 public:
  explicit FixedInput(std::deque<std::string> lines) : lines_(std::move(lines)) {}
  std::optional<std::string> Read(const std::string&) override {
    if (lines_.empty()) return std::nullopt;
    std::string line = lines_.front();
    lines_.pop_front();
    return line;
  }
  void Remember(const std::string&) override {}

 private:
  std::deque<std::string> lines_;
};

class ChatShellTest : public ::testing::Test {
 protected:
  // What the shell prints for these lines.
  std::string Run(std::deque<std::string> lines, const std::string& system = "") {
    FixedInput input(std::move(lines));
    std::string printed;
    ChatShell shell({.model = &model_,
                     .input = &input,
                     .print = [&](std::string_view text) { printed += text; },
                     .cancelled = [this] { return cancelled_; },
                     .interactive = interactive_,
                     .colours = colours_},
                    system);
    status_ = shell.Run();
    return printed;
  }

  EchoModel model_;
  bool cancelled_ = false;
  bool interactive_ = false;
  bool colours_ = false;
  Status status_;
};

TEST_F(ChatShellTest, AnswersSeeTheTurnsBefore) {
  EXPECT_EQ(Run({"one", "", "two"}, "be short"), "[one]\n[two]\n");
  ASSERT_EQ(model_.asked.size(), 2u);
  const auto messages = OrderedJson::parse(
      R"([{"role": "system", "content": "be short"}, {"role": "user", "content": "one"},
          {"role": "assistant", "content": "[one]"}, {"role": "user", "content": "two"}])");
  EXPECT_EQ(model_.asked[1], messages);
}

TEST_F(ChatShellTest, MessagesMayHaveSeveralLines) {
  Run({"one\\", "two", "\"\"\"three", "", "four", "\"\"\"", "\"\"\"five\"\"\""});
  ASSERT_EQ(model_.asked.size(), 3u);
  EXPECT_EQ(model_.asked[0].back()["content"], "one\ntwo");
  EXPECT_EQ(model_.asked[1].back()["content"], "three\n\nfour");
  EXPECT_EQ(model_.asked[2].back()["content"], "five");
}

TEST_F(ChatShellTest, DraftedTextIsColoured) {
  colours_ = true;
  EXPECT_EQ(Run({"a", "/drafts", "b"}), "\033[32m[a\033[0m]\ndrafted text is not coloured\n[b]\n");
}

TEST_F(ChatShellTest, CommandsChangeTheConversation) {
  const std::string printed = Run({"a", "/retry", "/reset", "/system be kind", "b", "/system -",
                                   "/stats", "/nothing", "/quit", "c"});
  EXPECT_EQ(model_.asked.size(), 3u) << "nothing is asked after /quit";
  EXPECT_EQ(model_.asked[0], model_.asked[1]) << "/retry asks the same again";
  EXPECT_EQ(model_.asked[2].size(), 2u) << "the system prompt and one message";
  EXPECT_NE(printed.find("6 tokens in 4 passes: 1.50 tokens per pass"), std::string::npos);
  EXPECT_NE(printed.find("unknown command '/nothing'"), std::string::npos) << printed;
}

TEST_F(ChatShellTest, AStoppedAnswerStaysInTheConversation) {
  cancelled_ = true;
  interactive_ = true;
  EXPECT_NE(Run({"a", "b"}).find("[a\n(stopped)\n"), std::string::npos);
  EXPECT_EQ(model_.asked[1][1]["content"], "[a");
}

TEST_F(ChatShellTest, AMessageWhoseAnswerFailsIsForgotten) {
  Run({"fail", "a"});
  EXPECT_EQ(status_.message(), "no answer");
  EXPECT_EQ(model_.asked[1].size(), 1u);
  interactive_ = true;
  EXPECT_NE(Run({"fail"}).find("error: no answer\n"), std::string::npos);
  EXPECT_TRUE(status_.ok()) << "the user has seen it";
}

TEST_F(ChatShellTest, TheConversationCanBeSaved) {
  const std::string path = ::testing::TempDir() + "/chat.json";
  EXPECT_EQ(Run({"a", "/save " + path, "/save", "/save /no/such/folder/x"}).find("[a]\nsaved to"),
            0u);
  const auto text = ReadFile(path);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(Json::parse(*text)["messages"][1]["content"], "[a]");
}

}  // namespace
}  // namespace talon
