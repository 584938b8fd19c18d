// Sampled calls of SpecSplit's clients, which send no seed and no rule of acceptance.
#include <gtest/gtest.h>
#include <serve/grpc/spec_decoding.pb.h>

#include <cmath>
#include <random>
#include <string>

#include "engine/sessions/test_sessions.h"
#include "serve/grpc/target_service.h"

namespace talon {
namespace {

constexpr int kChoices = 4;
constexpr double kChiSquare3Dof = 21.1;  // exceeded with probability 1e-4
const std::vector<int32_t> kPrompt = {3, 1, 4};

class SpecSplitSampling : public testing::Test {
 protected:
  SpecSplitSampling() : sessions_(MakeSessions(TestSessionOptions())), service_({.limits = {}}) {
    service_.Serve(&sessions_);
  }

  VerifyAnswer Verify(const specsplit::VerifyRequest& request) {
    const auto bytes =
        service_.Handle({.method = "VerifyDrafts", .message = request.SerializeAsString()});
    EXPECT_TRUE(bytes.ok()) << bytes.status().message();
    return DecodeVerifyAnswer(*bytes, {}, nullptr).value();
  }

  // The tokens of a session whose drafts are never right.
  std::vector<int32_t> Generate(const std::string& session, int count) {
    std::vector<int32_t> tokens = kPrompt;
    while (static_cast<int>(tokens.size()) < count) {
      specsplit::VerifyRequest request;
      request.set_session_id(session);
      *request.mutable_prompt_token_ids() = {tokens.begin(), tokens.end()};
      request.add_draft_tree()->set_token_id(0);
      request.set_temperature(2);
      const VerifyAnswer answer = Verify(request);
      tokens.insert(tokens.end(), answer.accepted.begin(), answer.accepted.end());
      tokens.push_back(answer.correction.value());
    }
    return tokens;
  }

  SessionThread sessions_;
  TargetService service_;
};

TEST_F(SpecSplitSampling, EverySessionHasItsOwnRandomNumbers) {
  EXPECT_NE(Generate("a", 20), Generate("b", 20));
  EXPECT_NE(Generate("", 20), Generate("", 20)) << "calls without a session";
}

TEST_F(SpecSplitSampling, ASeedOfZeroIsASeed) {
  const auto decode = [](const VerifyCall& call) {
    return DecodeVerifyCall(EncodeVerifyCall(call), {}).value();
  };
  VerifyCall call = FirstCall("a", Ten(), Chain({1}));
  EXPECT_FALSE(decode(call).seed.has_value());
  call.seed = 0;
  EXPECT_EQ(decode(call).seed, std::optional<uint64_t>(0));
}

// The most likely tokens after the prompt, and their probabilities among themselves.
struct Distribution {
  std::vector<int32_t> tokens;
  std::vector<double> probs;
};

Distribution TargetDistribution() {
  GenerateRequest request = Plain(kPrompt, 1);
  request.sampling.logprobs = kChoices;
  const EngineOptions options{.kv_dtype = DType::kF32, .max_length = 160};
  const GenerateResult result = RunBatch(Small().MakeEngine(options).get(), {request})[0];
  Distribution target;
  double sum = 0;
  for (const TopLogProb& entry : result.tokens[0].top) sum += std::exp(entry.log_prob);
  for (const TopLogProb& entry : result.tokens[0].top) {
    target.tokens.push_back(entry.token);
    target.probs.push_back(std::exp(entry.log_prob) / sum);
  }
  return target;
}

// A call with two drafts, drawn one after the other and without replacement from q; each carries
// the whole of q.
specsplit::VerifyRequest DrawnCall(const Distribution& q, int number) {
  std::mt19937 random(number);
  specsplit::VerifyRequest request;
  *request.mutable_prompt_token_ids() = {kPrompt.begin(), kPrompt.end()};
  request.set_temperature(1);
  request.set_top_k(kChoices);
  request.set_seed(number);  // so that the test repeats
  std::vector<double> left = q.probs;
  for (int i = 0; i < 2; ++i) {
    std::discrete_distribution<size_t> draw(left.begin(), left.end());
    const size_t choice = draw(random);
    left[choice] = 0;
    specsplit::TokenNode* node = request.add_draft_tree();
    node->set_token_id(q.tokens[choice]);
    node->set_log_prob(static_cast<float>(std::log(q.probs[choice])));
    for (size_t j = 0; j < q.tokens.size(); ++j) {
      node->add_top_k_token_ids(q.tokens[j]);
      node->add_top_k_probs(static_cast<float>(q.probs[j]));
    }
  }
  return request;
}

TEST_F(SpecSplitSampling, DraftProbabilitiesAreUsedAndTheDistributionIsTheTargets) {
  constexpr int kCalls = 4000;
  const Distribution target = TargetDistribution();
  const Distribution drafter{.tokens = target.tokens, .probs = {0.1, 0.2, 0.3, 0.4}};
  std::vector<int> counts(kChoices, 0);
  int accepted = 0, matched = 0;
  for (int i = 1; i <= kCalls; ++i) {
    specsplit::VerifyRequest request = DrawnCall(drafter, i);
    const VerifyAnswer answer = Verify(request);
    const int32_t token = answer.accepted.empty() ? *answer.correction : answer.accepted[0];
    const auto at = std::ranges::find(target.tokens, token);
    ASSERT_NE(at, target.tokens.end());
    ++counts[at - target.tokens.begin()];
    accepted += static_cast<int>(answer.accepted.size());
    request.set_acceptance("match");
    matched += static_cast<int>(Verify(request).accepted.size());
  }
  double chi_square = 0;
  for (int i = 0; i < kChoices; ++i) {
    const double expected = kCalls * target.probs[i];
    chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(chi_square, kChiSquare3Dof);
  EXPECT_GT(accepted, matched + kCalls / 20) << "the drafts' own probabilities accept more";
}

}  // namespace
}  // namespace talon
