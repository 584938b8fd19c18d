#include "apps/common/command_line.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

// Two commands like the program's.
class CommandLineTest : public testing::Test {
 protected:
  CommandLineTest() : line_("A program.", "talon 1") {
    Command run = line_.root().AddSubcommand("run", "Generate text");
    Option text = run.AddOption("text", &text_, "Text to continue");
    run.AddOption("-p,--prompt", &prompt_, "The same").Excludes(text);
    run.AddOption("--temperature", &temperature_, "Heat");
    run.AddOption("--max-rounds", &rounds_, "Rounds");
    Command serve = line_.root().AddSubcommand("serve", "Serve");
    serve.AddOption("--temperature", &temperature_, "Heat");
    Command tokenize = line_.root().AddSubcommand("tokenize", "Print tokens");
    tokenize.AddOption("file", &text_, "JSON lines").Required().TypeName("FILE");
  }

  // What is wrong with the line; "" = nothing.
  std::string Parse(std::vector<std::string> words) {
    words.insert(words.begin(), "talon");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return line_.Parse(static_cast<int>(argv.size()), argv.data()).status().message();
  }

  CommandLine line_;
  std::string text_, prompt_;
  float temperature_ = 0;
  int rounds_ = 0;
};

TEST_F(CommandLineTest, ShortFlagsAndArguments) {
  EXPECT_EQ(Parse({"run", "-p", "hello", "--temperature", "0.5"}), "");
  EXPECT_EQ(prompt_, "hello");
  EXPECT_EQ(Parse({"run", "some text"}), "");
  EXPECT_EQ(text_, "some text");
}

TEST_F(CommandLineTest, AnUnknownFlagIsNamedEvenIfItsValueFitsElsewhere) {
  for (const char* prompt : {"--prompt", "-p"}) {
    EXPECT_EQ(Parse({"run", prompt, "hi", "--temprature", "0.3"}),
              "unknown flag --temprature, did you mean --temperature? (see 'talon run --help')");
  }
}

TEST_F(CommandLineTest, AFlagOfAnotherCommandSaysWhose) {
  EXPECT_EQ(Parse({"serve", "--max-rounds", "5"}),
            "--max-rounds: 'talon serve' has no use for it, 'talon run' does "
            "(see 'talon serve --help')");
}

TEST_F(CommandLineTest, AMissingArgumentSaysWhatItIs) {
  EXPECT_EQ(Parse({"tokenize"}),
            "'talon tokenize' needs FILE: JSON lines (see 'talon tokenize --help')");
}

TEST_F(CommandLineTest, UnknownCommandsComeBeforeTheirFlags) {
  EXPECT_EQ(Parse({"rum", "--temperature", "1"}),
            "unknown command 'rum', did you mean run? (see 'talon --help')");
  EXPECT_EQ(Parse({}), "'talon' needs a command: run, serve, tokenize (see 'talon --help')");
  EXPECT_EQ(Parse({"run", "one", "two"}),
            "unexpected argument 'two'; a text of several words needs quotes "
            "(see 'talon run --help')");
}

TEST_F(CommandLineTest, FlagsThatACommandLacksWereNotGiven) {
  ASSERT_EQ(Parse({"serve", "--temperature", "1"}), "");
  EXPECT_EQ(line_.root().Count("--nowhere"), 0u);
}

TEST_F(CommandLineTest, DescribesItself) {
  const CommandInfo program = line_.root().Describe();
  ASSERT_EQ(program.commands.size(), 3u);
  const CommandInfo& run = program.commands[0];
  EXPECT_EQ(run.name, "run");
  EXPECT_EQ(run.description, "Generate text");
  const OptionInfo& prompt = run.options[2];  // after --help and the argument
  EXPECT_EQ(prompt.flags, (std::vector<std::string>{"-p", "--prompt"}));
  EXPECT_EQ(prompt.help, "The same");
  EXPECT_TRUE(run.options[0].value.empty()) << "--help takes no value";
}

}  // namespace
}  // namespace talon
