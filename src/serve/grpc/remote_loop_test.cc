// Workers and clients over real gRPC, on ports of this machine: the text is that of local plain
// decoding, whichever side fails.
#include <gtest/gtest.h>

#include "engine/sessions/session_thread.h"
#include "engine/test_engine.h"
#include "remote/orchestrator.h"
#include "remote/remote_drafter.h"
#include "serve/grpc/draft_service.h"
#include "serve/grpc/rpc_links.h"
#include "serve/grpc/rpc_server.h"
#include "serve/grpc/target_service.h"
#include "spec/drafters/ngram_drafter.h"
#include "spec/drafters/standalone_drafter.h"

namespace talon {
namespace {

constexpr int kMaxLength = 256;
constexpr int kTreeNodes = 64;

SessionOptions TargetOptions() {
  SessionOptions options;
  options.engine.max_length = kMaxLength;
  options.engine.max_sequences = 4;
  options.max_sessions = 4;
  options.max_tree_nodes = kTreeNodes;
  return options;
}

TestModel& Tiny() {
  static TestModel model("models/tiny", WeightFormat::kInt8);
  return model;
}

// A target worker of this process. Its port can be that of an earlier one.
class TargetWorker {
 public:
  explicit TargetWorker(int port = 0)
      : sessions_(MakeEngine()), service_({.model_name = "tiny", .limits = Limits()}) {
    service_.Serve(&sessions_);
    auto server = RpcServer::Start({.kind = WorkerKind::kTarget, .port = port}, &service_);
    EXPECT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
    server_->SetServing(true);
  }
  ~TargetWorker() { sessions_.Shutdown(std::chrono::milliseconds(0)); }
  int port() const { return server_->port(); }
  std::string address() const { return server_->address(); }
  SessionThread& sessions() { return sessions_; }

 private:
  static std::unique_ptr<SessionEngine> MakeEngine() {
    auto engine = SessionEngine::Create(
        {.backend = Tiny().backend.get(), .target = Tiny().target.get()}, TargetOptions());
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return std::move(engine).value();
  }
  static WireLimits Limits() { return {.max_tree_nodes = kTreeNodes}; }

  SessionThread sessions_;
  TargetService service_;
  std::unique_ptr<RpcServer> server_;
};

class DraftWorker {
 public:
  explicit DraftWorker(std::unique_ptr<Drafter> drafter, int vocab_size = 0, int port = 0)
      : sessions_(std::move(drafter), {}), service_({.model_name = "draft"}) {
    service_.Serve(&sessions_, vocab_size);
    auto server = RpcServer::Start({.kind = WorkerKind::kDraft, .port = port}, &service_);
    EXPECT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
    server_->SetServing(true);
  }
  int port() const { return server_->port(); }
  std::string address() const { return server_->address(); }

 private:
  DraftSessions sessions_;
  DraftService service_;
  std::unique_ptr<RpcServer> server_;
};

// On a backend of its own, as it works while the target does.
std::unique_ptr<Drafter> ModelDrafter() {
  static Metrics metrics;
  static const std::unique_ptr<Backend> backend = NewTestBackend(1);
  auto drafter =
      StandaloneDrafter::Load({.model_path = std::string(TALON_SOURCE_DIR) + "/models/tiny-draft",
                               .budget = {.max_nodes = DraftSessionsOptions::kMaxNodes + 1,
                                          .max_depth = 16,
                                          .top_k = DraftSessionsOptions::kMaxBeams},
                               .sample = true,
                               .drawn_trees = true,
                               .vocab_size = Tiny().target->config().vocab_size,
                               .cache = {.max_length = kMaxLength, .max_sequences = 8}},
                              backend.get(), &metrics);
  EXPECT_TRUE(drafter.ok()) << drafter.status().message();
  return std::move(drafter).value();
}

GenerateRequest Request(bool sampled) {
  GenerateRequest request;
  request.prompt = Tiny().tokenizer->Encode("Once upon a time there was a", true).value();
  request.sampling = {.temperature = sampled ? 0.9f : 0.0f,
                      .top_p = sampled ? 0.95f : 1.0f,
                      .max_tokens = 60,
                      .seed = 11};
  return request;
}

GenerateResult LocalPlain(bool sampled) {
  EngineOptions options;
  options.max_length = kMaxLength;
  auto result = Tiny().MakeEngine(options)->Generate(Request(sampled));
  EXPECT_TRUE(result.ok());
  return std::move(result).value();
}

std::unique_ptr<RpcTargetLink> LinkTo(const TargetWorker& worker) {
  return RpcTargetLink::Open({.address = worker.address()}).value();
}

OrchestratorOptions Options() {
  const std::vector<int>& eos = Tiny().target->config().eos_token_ids;
  return {.max_length = kMaxLength,
          .eos_ids = {eos.begin(), eos.end()},
          .vocab_size = Tiny().target->config().vocab_size};
}

void ExpectLocalText(const GenerateResult& result, bool sampled) {
  const GenerateResult local = LocalPlain(sampled);
  EXPECT_EQ(result.TokenIds(), local.TokenIds());
  EXPECT_EQ(result.text, local.text);
  EXPECT_EQ(result.finish, local.finish) << result.error.message();
}

class RemoteLoop : public testing::TestWithParam<bool> {};  // sampled

TEST_P(RemoteLoop, PlainRemoteDecoding) {
  TargetWorker target;
  const auto link = LinkTo(target);
  Orchestrator orchestrator({.target = link.get(), .tokenizer = Tiny().tokenizer.get()}, Options());
  ExpectLocalText(orchestrator.Generate(Request(GetParam())), GetParam());
  EXPECT_EQ(target.sessions().snapshot().sessions, 0) << "the session was ended";
}

TEST_P(RemoteLoop, WithDraftsAheadOrInTurn) {
  TargetWorker target;
  DraftWorker draft(ModelDrafter(), Tiny().target->config().vocab_size);
  const auto target_link = LinkTo(target);
  Metrics metrics;
  const auto draft_link = RpcDraftLink::Open({.address = draft.address(), .metrics = &metrics});
  ASSERT_TRUE(draft_link.ok());
  for (const bool overlap : {true, false}) {
    for (const int beams : {1, 4}) {
      OrchestratorOptions options = Options();
      options.draft.overlap = overlap;
      options.draft.num_beams = beams;
      options.draft.adaptive = false;  // by times, which differ from run to run
      Orchestrator orchestrator({.target = target_link.get(),
                                 .draft = draft_link->get(),
                                 .tokenizer = Tiny().tokenizer.get()},
                                options);
      const GenerateResult result = orchestrator.Generate(Request(GetParam()));
      ExpectLocalText(result, GetParam());
      EXPECT_GT(result.stats.accepted, 0);
      EXPECT_LT(result.stats.passes, 60);
    }
  }
  EXPECT_GT(metrics.Get(Counter::kRemotePayloadBytes, "received"), 0);
}

TEST_P(RemoteLoop, BothWorkersRestart) {
  auto target = std::make_unique<TargetWorker>();
  auto draft = std::make_unique<DraftWorker>(std::make_unique<NgramDrafter>());
  const int target_port = target->port();
  const int draft_port = draft->port();
  const auto target_link = LinkTo(*target);
  const auto draft_link = RpcDraftLink::Open({.address = draft->address()});
  ASSERT_TRUE(draft_link.ok());
  GenerateRequest request = Request(GetParam());
  size_t emitted = 0;
  request.on_update = [&](const RequestUpdate& update) {
    const size_t before = emitted;
    emitted += update.tokens.size();
    const auto passed = [&](size_t mark) { return before < mark && emitted >= mark; };
    if (passed(10)) draft.reset();
    if (passed(20)) {
      target.reset();
      target = std::make_unique<TargetWorker>(target_port);
    }
    if (passed(30)) {
      draft = std::make_unique<DraftWorker>(std::make_unique<NgramDrafter>(), 0, draft_port);
    }
  };
  Orchestrator orchestrator({.target = target_link.get(),
                             .draft = draft_link->get(),
                             .tokenizer = Tiny().tokenizer.get()},
                            Options());
  ExpectLocalText(orchestrator.Generate(std::move(request)), GetParam());
}

TEST_P(RemoteLoop, TheEngineWithARemoteDrafter) {
  DraftWorker draft(ModelDrafter(), Tiny().target->config().vocab_size);
  auto link = RpcDraftLink::Open({.address = draft.address()});
  ASSERT_TRUE(link.ok());
  EngineOptions options;
  options.max_length = kMaxLength;
  options.step.budget = {.max_nodes = 12, .max_depth = 5, .top_k = 4};
  auto engine = Tiny().MakeEngine(
      options, std::make_unique<RemoteDrafter>(
                   RemoteDrafter::Parts{.link = std::move(*link)},
                   RemoteDrafterOptions{.client = {.max_nodes = 11, .adaptive = false},
                                        .vocab_size = Tiny().target->config().vocab_size}));
  const auto results =
      RunBatch(engine.get(), {Request(GetParam()), Request(GetParam()), Request(!GetParam())});
  ExpectLocalText(results[0], GetParam());
  ExpectLocalText(results[1], GetParam());
  ExpectLocalText(results[2], !GetParam());
  EXPECT_GT(results[0].stats.accepted, 0);
}

TEST_P(RemoteLoop, TheEngineWithoutItsDraftWorker) {
  auto link = RpcDraftLink::Open({.address = "127.0.0.1:1"});
  ASSERT_TRUE(link.ok());
  EngineOptions options;
  options.max_length = kMaxLength;
  options.step.budget = {.max_nodes = 12, .max_depth = 5, .top_k = 4};
  auto engine = Tiny().MakeEngine(
      options, std::make_unique<RemoteDrafter>(
                   RemoteDrafter::Parts{.link = std::move(*link)},
                   RemoteDrafterOptions{.vocab_size = Tiny().target->config().vocab_size}));
  const auto results = RunBatch(engine.get(), {Request(GetParam())});
  ExpectLocalText(results[0], GetParam());
}

INSTANTIATE_TEST_SUITE_P(Decoding, RemoteLoop, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "Seeded" : "Greedy");
});

// Drafts with their distributions travel there and back, and are accepted by them.
TEST(RemoteRejection, AcceptsByTheDraftsOwnDistributions) {
  TargetWorker target;
  DraftWorker draft(ModelDrafter(), Tiny().target->config().vocab_size);
  const auto target_link = LinkTo(target);
  const auto draft_link = RpcDraftLink::Open({.address = draft.address()});
  ASSERT_TRUE(draft_link.ok());
  OrchestratorOptions options = Options();
  options.rejection = true;
  options.draft.num_beams = 2;
  options.draft.adaptive = false;
  Orchestrator orchestrator({.target = target_link.get(),
                             .draft = draft_link->get(),
                             .tokenizer = Tiny().tokenizer.get()},
                            options);
  const GenerateResult result = orchestrator.Generate(Request(/*sampled=*/true));
  EXPECT_TRUE(result.error.ok()) << result.error.message();
  EXPECT_GT(result.tokens.size(), 0u);
  EXPECT_GT(result.stats.accepted, 0);
}

}  // namespace
}  // namespace talon
