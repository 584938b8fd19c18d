// Session engines on a small model, and calls, for tests.
#ifndef TALON_ENGINE_SESSIONS_TEST_SESSIONS_H_
#define TALON_ENGINE_SESSIONS_TEST_SESSIONS_H_

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/sessions/session_engine.h"
#include "engine/sessions/test_session_client.h"
#include "engine/test_engine.h"

namespace talon {

inline SessionOptions TestSessionOptions(int max_sessions = 4) {
  SessionOptions options;
  options.engine = {.kv_dtype = DType::kF32,
                    .max_length = 160,
                    .max_sequences = 8,
                    .prefill_chunk = 24,
                    .kv_audit = true};
  options.max_sessions = max_sessions;
  options.max_tree_nodes = 32;
  options.max_prompt_tokens = 120;
  return options;
}

inline std::unique_ptr<SessionEngine> MakeSessions(const SessionOptions& options) {
  auto made = SessionEngine::Create(
      {.backend = Small().backend.get(), .target = Small().target.get()}, options);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made).value();
}

inline GenerateRequest Plain(std::vector<int32_t> prompt, int max_tokens) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

inline GenerateRequest RandomRequest(std::mt19937& random, bool shared_beginning) {
  std::vector<int32_t> prompt =
      RandomPrompt(random, 2 + static_cast<int>(random() % 50), kVocabulary);
  if (shared_beginning) {
    for (size_t i = 0; i + 1 < prompt.size() && i < 33; ++i) prompt[i] = static_cast<int32_t>(i);
  }
  GenerateRequest request = Plain(std::move(prompt), 10 + static_cast<int>(random() % 30));
  if (random() % 2 == 0) {
    request.sampling.temperature = 0.5f + static_cast<float>(random() % 10) / 10;
    request.sampling.seed = random();
    if (random() % 2 == 0) request.sampling.top_k = 40;
    if (random() % 2 == 0) request.sampling.top_p = 0.9f;
  }
  return request;
}

// By the ordinary engine.
inline std::vector<std::vector<int32_t>> PlainTokens(const std::vector<GenerateRequest>& requests,
                                                     DType kv_dtype = DType::kF32) {
  const EngineOptions options{.kv_dtype = kv_dtype, .max_length = 160, .max_sequences = 8};
  std::vector<std::vector<int32_t>> tokens;
  for (const GenerateResult& result : RunBatch(Small().MakeEngine(options).get(), requests)) {
    tokens.push_back(result.TokenIds());
  }
  return tokens;
}

inline std::vector<int32_t> PlainTokens(std::vector<int32_t> prompt, int count) {
  return PlainTokens({Plain(std::move(prompt), count)})[0];
}

inline std::vector<int32_t> Ten() { return {3, 1, 4, 1, 5, 9, 2, 6, 5, 3}; }

inline VerifyCall FirstCall(std::string session, std::vector<int32_t> prompt, DraftForest drafts) {
  VerifyCall call;
  call.session_id = std::move(session);
  call.prompt = std::move(prompt);
  call.drafts = std::move(drafts);
  return call;
}

inline VerifyCall DeltaCall(std::string session, std::vector<int32_t> delta, int expected,
                            DraftForest drafts) {
  VerifyCall call;
  call.session_id = std::move(session);
  call.delta = std::move(delta);
  call.expected_prefix = expected;
  call.drafts = std::move(drafts);
  return call;
}

// A draft that plain decoding does not give here.
inline int32_t Other(int32_t token) { return (token + 1) % kVocabulary; }

inline void ExpectFailure(const Result<VerifyAnswer>& answer, StatusCode code,
                          const std::string& detail) {
  ASSERT_FALSE(answer.ok()) << "want " << detail;
  EXPECT_EQ(answer.status().code(), code) << answer.status().message();
  EXPECT_TRUE(answer.status().message().starts_with(detail + ": ")) << answer.status().message();
}

}  // namespace talon

#endif  // TALON_ENGINE_SESSIONS_TEST_SESSIONS_H_
