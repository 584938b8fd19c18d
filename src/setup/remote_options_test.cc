#include "setup/remote_options.h"

#include <gtest/gtest.h>

namespace talon {
namespace {

ModelConfig SmallModel() {
  ModelConfig model;
  model.vocab_size = 100;
  model.max_context = 512;
  model.eos_token_ids = {7, 9};
  return model;
}

TEST(RemoteOptions, AddressesAndMethodMustFit) {
  Config config;
  EXPECT_TRUE(CheckRemoteMethod(config).ok());
  config.speculative.method = "remote";
  EXPECT_EQ(CheckRemoteMethod(config).message(),
            "speculative_algorithm: REMOTE needs --draft-address HOST:PORT");
  config.remote.draft_address = "127.0.0.1:50051";
  EXPECT_TRUE(CheckRemoteMethod(config).ok());
  config.speculative.method = "NGRAM";
  EXPECT_EQ(CheckRemoteMethod(config).message(),
            "draft_address: needs --speculative-algorithm REMOTE, which is NGRAM");
  config.remote.draft_address.clear();
  config.remote.target_address = "127.0.0.1:50052";
  EXPECT_EQ(CheckRemoteMethod(config).message(),
            "speculative_algorithm: NGRAM runs beside its target; with --target-address it must be "
            "REMOTE or NONE");
  config.speculative.method = "REMOTE";
  EXPECT_TRUE(CheckRemoteMethod(config).ok()) << "plain remote decoding";
  config.remote.num_beams = 17;
  EXPECT_FALSE(CheckRemoteMethod(config).ok());
}

TEST(RemoteOptions, FlagsThatWouldBeIgnoredAreRefused) {
  Config config;
  const auto check = [&config](std::string_view flag) {
    return CheckIgnoredFlags(config, [flag](std::string_view each) { return each == flag; })
        .message();
  };
  EXPECT_EQ(check("--weights"), "");
  EXPECT_EQ(check("--timeout-s"), "--timeout-s: needs --target-address or --draft-address");
  EXPECT_EQ(check("--telemetry"), "--telemetry: needs --target-address HOST:PORT");
  config.remote.draft_address = "127.0.0.1:50051";
  EXPECT_EQ(check("--timeout-s"), "");
  EXPECT_EQ(check("--telemetry"), "--telemetry: needs --target-address HOST:PORT");
  config.remote.target_address = "127.0.0.1:50052";
  EXPECT_EQ(check("--telemetry"), "");
  EXPECT_EQ(check("--weights"),
            "--weights: is the target worker's to say, not with --target-address");
}

TEST(RemoteOptions, TheShortestLimitCounts) {
  Config config;
  EXPECT_EQ(MakeOrchestratorOptions(config, SmallModel())->max_length, 512);
  config.remote.max_context_window = 4096;
  EXPECT_EQ(MakeOrchestratorOptions(config, SmallModel())->max_length, 512);
  config.max_length = 300;
  EXPECT_EQ(MakeOrchestratorOptions(config, SmallModel())->max_length, 300);
  config.remote.max_context_window = 200;
  const auto options = MakeOrchestratorOptions(config, SmallModel());
  EXPECT_EQ(options->max_length, 200);
  EXPECT_EQ(options->vocab_size, 100);
  EXPECT_EQ(options->eos_ids, (std::vector<int32_t>{7, 9}));
}

TEST(RemoteOptions, AcceptanceIsTheTargets) {
  Config config;
  EXPECT_FALSE(MakeOrchestratorOptions(config, SmallModel())->rejection);
  config.speculative.acceptance = "rejection";
  EXPECT_TRUE(MakeOrchestratorOptions(config, SmallModel())->rejection);
  config.speculative.acceptance = "threshold";
  EXPECT_EQ(MakeOrchestratorOptions(config, SmallModel()).status().message(),
            "acceptance: 'threshold', must be match or rejection with a remote target");
}

TEST(RemoteOptions, TheEnginesBudgetHoldsTheWorkersTrees) {
  Config config;
  config.remote.max_draft_tokens = 6;
  config.remote.num_beams = 1;
  EXPECT_EQ(RemoteDraftBudget(config).max_nodes, 7);
  config.remote.draft_nodes = 30;
  config.remote.num_beams = 3;
  const DraftBudget budget = RemoteDraftBudget(config);
  EXPECT_EQ(budget.max_nodes, 31);
  EXPECT_EQ(budget.max_depth, 6);
  EXPECT_EQ(budget.top_k, 3);
}

}  // namespace
}  // namespace talon
