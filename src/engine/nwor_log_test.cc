// The log lines of no-write-on-reject: what they say is what happened.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "engine/test_engine.h"

namespace talon {
namespace {

using Fields = std::map<std::string, double>;

// The numbers of every line "EVENT key=number ..." of a log.
std::vector<Fields> LinesOf(const std::string& log, const std::string& event) {
  std::vector<Fields> lines;
  std::istringstream stream(log);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(event + " ")) continue;
    Fields& fields = lines.emplace_back();
    static const std::regex kField(R"((\w+)=([0-9.e+-]+))");
    for (std::sregex_iterator at(line.begin(), line.end(), kField), end; at != end; ++at) {
      fields[(*at)[1]] = std::stod((*at)[2]);
    }
  }
  return lines;
}

double SumOf(const std::vector<Fields>& lines, const std::string& key) {
  double sum = 0;
  for (const Fields& line : lines) sum += line.contains(key) ? line.at(key) : 0;
  return sum;
}

struct LoggedRun {
  std::string log;
  std::unique_ptr<Engine> engine;
  RequestId request = 0;
};

// A request with drafts of which some are rejected, logged at `level`.
LoggedRun RunLogged(LogLevel level, bool nwor) {
  static TestModel model("tests/data/goldens/llama3");
  EngineOptions options{.kv_dtype = DType::kF32, .max_length = 128, .max_sequences = 2};
  options.step.budget = {.max_nodes = 8, .max_depth = 4};
  options.step.nwor = nwor;
  std::mt19937 random(3);
  GenerateRequest request{.prompt = RandomPrompt(random, 20, kVocabulary),
                          .sampling = {.max_tokens = 24, .ignore_eos = true}};
  const auto plain = model.MakeEngine(options)->Generate(request);
  std::vector<int32_t> answer = request.prompt;
  for (const EmittedToken& token : plain->tokens) answer.push_back(token.token);

  LoggedRun run;
  SetLogLevel(level);
  testing::internal::CaptureStderr();
  run.engine = model.MakeEngine(
      options, std::make_unique<OracleDrafter>(std::vector<std::vector<int32_t>>{answer},
                                               kVocabulary, 0.7, 5));
  run.request = run.engine->Submit(request).value();
  while (run.engine->HasWork()) run.engine->RunStep();
  run.log = testing::internal::GetCapturedStderr();
  SetLogLevel(LogLevel::kWarning);
  return run;
}

TEST(NworLog, DebugLinesCountEveryStagedRowOnce) {
  const LoggedRun run = RunLogged(LogLevel::kDebug, /*nwor=*/true);
  const KvShape& shape = run.engine->kv().shape();
  const auto ready = LinesOf(run.log, "NWOR: ready");
  ASSERT_EQ(ready.size(), 1u) << run.log;
  EXPECT_EQ(ready[0].at("staging_rows"), shape.staging_rows);
  EXPECT_EQ(ready[0].at("staging_bytes"),
            static_cast<double>(shape.staging_rows * shape.BytesPerToken()));

  const auto staged = LinesOf(run.log, "NWOR: staged");
  std::vector<Fields> steps, requests;
  for (const Fields& line : LinesOf(run.log, "NWOR: committed")) {
    (line.contains("request") ? requests : steps).push_back(line);
  }
  EXPECT_GT(staged.size(), 1u);
  EXPECT_EQ(staged.size(), steps.size()) << "one sequence: each pass has one commit";
  const double committed = SumOf(steps, "rows");
  const double rejected = SumOf(steps, "rejected");
  EXPECT_GT(committed, 0);
  EXPECT_GT(rejected, 0);
  EXPECT_EQ(SumOf(staged, "rows"), committed + rejected);
  const Metrics& metrics = run.engine->metrics();
  EXPECT_EQ(committed, metrics.Total(Counter::kNworTokensCommitted));
  EXPECT_EQ(rejected, metrics.Total(Counter::kNworTokensRejected));

  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].at("request"), run.request);
  EXPECT_EQ(requests[0].at("rows"), committed);
  EXPECT_NEAR(requests[0].at("acceptance"), committed / (committed + rejected), 1e-3);
}

TEST(NworLog, InfoHasOneLineOfTheEngineAndOneOfEachRequest) {
  const LoggedRun run = RunLogged(LogLevel::kInfo, /*nwor=*/true);
  EXPECT_EQ(LinesOf(run.log, "NWOR: ready").size(), 1u);
  EXPECT_TRUE(LinesOf(run.log, "NWOR: staged").empty());
  EXPECT_EQ(LinesOf(run.log, "NWOR: committed").size(), 1u);
}

TEST(NworLog, NothingIsSaidOfWhatIsOff) {
  EXPECT_EQ(RunLogged(LogLevel::kDebug, /*nwor=*/false).log.find("NWOR"), std::string::npos);
}

}  // namespace
}  // namespace talon
