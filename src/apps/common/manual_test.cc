#include "apps/common/manual.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

CommandInfo TestProgram() {
  const OptionInfo device{.flags = {"--device"},
                          .value = "TEXT",
                          .help = "Where it runs",
                          .group = "Model",
                          .choices = {"cpu", "cuda"}};
  const OptionInfo model{
      .flags = {"-m", "--model"}, .value = "DIR", .help = ".hidden\n'quoted'", .group = "Model"};
  const OptionInfo json{.flags = {"--json"}, .help = "It's [JSON]: all of it", .group = "Options"};
  return {.description = "A program.",
          .footer = "Examples",
          .commands = {
              {.name = "run", .description = "Generate text", .options = {json, device, model}},
              {.name = "bench",
               .description = "Measure",
               .commands = {{.name = "bench ops", .description = "Ops", .options = {device}}}}}};
}

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(Manual, SharedFlagsStandOnceUnderTheirHeading) {
  const std::string page = ManualPage(TestProgram(), "talon 1");
  EXPECT_EQ(CountOf(page, "\\fB\\-\\-device\\fR \\fITEXT\\fR"), 1u) << page;
  EXPECT_EQ(CountOf(page, "\\fB\\-m\\fR, \\fB\\-\\-model\\fR \\fIDIR\\fR"), 1u);
  EXPECT_EQ(CountOf(page, "Also takes the settings of \\fBModel\\fR"), 2u);
  EXPECT_NE(page.find(".SS talon bench ops\n"), std::string::npos);
}

TEST(Manual, TextIsNotTakenForRequests) {
  const std::string page = ManualPage(TestProgram(), "talon 1");
  EXPECT_NE(page.find("\n\\&.hidden\n\\&'quoted'\n"), std::string::npos) << page;
}

TEST(Manual, BashKnowsCommandsFlagsAndValues) {
  const std::string script = BashCompletion(TestProgram());
  EXPECT_NE(script.find("'run') words='--device --json --model -m';;"), std::string::npos)
      << script;
  EXPECT_NE(script.find("'bench') words='ops --help';;"), std::string::npos);
  EXPECT_NE(script.find("    --device)\n      mapfile -t COMPREPLY < <(compgen -W 'cpu cuda' "),
            std::string::npos);
  EXPECT_NE(script.find("    --model|-m)\n      mapfile -t COMPREPLY < <(compgen -d "),
            std::string::npos);
  EXPECT_EQ(CountOf(script, "--json"), 1u) << "it takes no value";
}

TEST(Manual, ZshEscapesHelp) {
  const std::string script = ZshCompletion(TestProgram());
  EXPECT_NE(script.find("'*--json[It'\\''s \\[JSON\\]\\: all of it]'"), std::string::npos)
      << script;
  EXPECT_NE(script.find("'*--device[Where it runs]:TEXT:(cpu cuda)'"), std::string::npos);
}

}  // namespace
}  // namespace talon
