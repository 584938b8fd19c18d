// A client of session engines for tests: it knows what plain decoding gives, drafts random trees
// around it and forgets, repeats and confuses things.
#ifndef TALON_ENGINE_SESSIONS_TEST_SESSION_CLIENT_H_
#define TALON_ENGINE_SESSIONS_TEST_SESSION_CLIENT_H_

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/prefix_hash.h"
#include "engine/remote_calls.h"
#include "engine/sessions/session_engine.h"
#include "engine/test_engine.h"

namespace talon {

// `next` and what follows it, each token the child of the one before.
inline DraftForest Chain(std::vector<int32_t> tokens) {
  DraftForest drafts;
  for (size_t i = 0; i < tokens.size(); ++i) {
    drafts.parents.push_back(static_cast<int32_t>(i) - 1);
    drafts.probs.push_back(0.5f);
  }
  drafts.tokens = std::move(tokens);
  return drafts;
}

// A forest in which the tokens of `truth` are present with some probability per level.
inline DraftForest RandomForest(std::mt19937& random, std::span<const int32_t> truth, int max_nodes,
                                int vocabulary) {
  DraftForest drafts;
  std::vector<size_t> depth;
  int tip = -1;  // deepest node on the true path
  const int wanted = static_cast<int>(random() % static_cast<uint32_t>(max_nodes + 1));
  for (int tries = 0; drafts.size() < wanted && tries < 4 * wanted; ++tries) {
    const bool extend = random() % 10 < 7;
    const int parent =
        extend ? tip : static_cast<int>(random() % static_cast<uint32_t>(drafts.size() + 1)) - 1;
    const size_t level = parent < 0 ? 0 : depth[parent] + 1;
    if (level >= 20) continue;
    const bool known = parent == tip && extend && level < truth.size();
    const int32_t token = known ? truth[level] : static_cast<int32_t>(random() % vocabulary);
    bool repeated = false;
    for (int i = 0; i < drafts.size(); ++i) {
      repeated |= drafts.parents[i] == parent && drafts.tokens[i] == token;
    }
    if (repeated) continue;
    drafts.tokens.push_back(token);
    drafts.parents.push_back(parent);
    drafts.probs.push_back(0.5f);
    depth.push_back(level);
    if (known) tip = drafts.size() - 1;
  }
  return drafts;
}

// Runs the engine until the calls are answered, in order.
inline std::vector<Result<VerifyAnswer>> RunCalls(SessionEngine* engine,
                                                  std::vector<VerifyCall> calls,
                                                  SessionEngine::TimePoint now = {}) {
  std::vector<SessionEngine::CallId> ids;
  for (VerifyCall& call : calls) {
    const Status status = engine->Check(call);
    EXPECT_TRUE(status.ok()) << status.message();
    ids.push_back(engine->Submit(std::move(call)));
  }
  std::vector<Result<VerifyAnswer>> answers(ids.size(), Internal("not answered"));
  while (engine->HasWork()) {
    engine->RunStep(now);
    const Status status = engine->CheckIntegrity();
    EXPECT_TRUE(status.ok()) << status.message();
    for (auto& one : engine->TakeFinished()) {
      answers[std::ranges::find(ids, one.id) - ids.begin()] = std::move(one.answer);
    }
  }
  return answers;
}

inline Result<VerifyAnswer> RunCall(SessionEngine* engine, VerifyCall call,
                                    SessionEngine::TimePoint now = {}) {
  return std::move(RunCalls(engine, {std::move(call)}, now)[0]);
}

// One generation.
class TestClient {
 public:
  // `answer`: what plain decoding gives after the prompt.
  TestClient(std::string id, GenerateRequest request, std::vector<int32_t> answer, int seed)
      : id_(std::move(id)), request_(std::move(request)), random_(seed) {
    context_ = request_.prompt;
    truth_ = request_.prompt;
    truth_.insert(truth_.end(), answer.begin(), answer.end());
  }

  const std::string& id() const { return id_; }
  bool done() const { return context_.size() >= truth_.size(); }
  const std::vector<int32_t>& context() const { return context_; }
  const std::vector<int32_t>& truth() const { return truth_; }
  int hits() const { return hits_; }
  int desyncs() const { return desyncs_; }
  int accepted() const { return accepted_; }

  // The next call: as the protocol wants it, or one of the things that go wrong.
  VerifyCall NextCall() {
    const int event = static_cast<int>(random_() % 20);
    if (event == 0) wire_length_ = 0;                                  // resends everything
    if (event == 1 && context_.size() > request_.prompt.size() + 1) {  // takes tokens back
      context_.resize(request_.prompt.size() +
                      random_() % (context_.size() - request_.prompt.size()));
      wire_length_ = 0;
    }
    if (event == 2 && !last_.request_id.empty()) return last_;  // duplicate
    VerifyCall call = Basics();
    if (wire_length_ == 0) {
      call.prompt = context_;
    } else {
      call.delta.assign(context_.begin() + wire_length_, context_.end());
      call.expected_prefix = wire_length_;
      if (random_() % 2 == 0) {
        call.prefix_hash = PrefixHash(std::span(context_).first(wire_length_));
      }
      if (event == 3) call.expected_prefix += 1 + static_cast<int>(random_() % 3);  // is confused
      if (event == 4) call.prefix_hash = 17;
    }
    const std::span<const int32_t> rest = std::span(truth_).subspan(context_.size());
    call.drafts = RandomForest(random_, rest, 24, 512);
    call.decode_on_empty = random_() % 2 == 0;
    return call;
  }

  void Take(const VerifyCall& call, const Result<VerifyAnswer>& answer) {
    if (!answer.ok()) {
      TakeFailure(answer.status());
    } else if (!last_.request_id.empty() && call.request_id == last_.request_id) {
      ExpectSameAnswer(*answer);
    } else {
      TakeAnswer(call, *answer);
    }
  }

 private:
  VerifyCall Basics() {
    VerifyCall call;
    call.request_id = id_ + "/" + std::to_string(++calls_);
    call.session_id = id_;
    call.temperature = request_.sampling.temperature;
    call.top_k = request_.sampling.top_k;
    call.top_p = request_.sampling.top_p;
    call.min_p = request_.sampling.min_p;
    call.seed = request_.sampling.seed.value_or(0);
    return call;
  }

  void TakeFailure(const Status& status) {
    const std::string& message = status.message();
    if (message.starts_with("CACHE_EVICTED_DELTA_ONLY")) {
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
      wire_length_ = 0;
      last_ = {};
      ++desyncs_;
    } else {
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << message;
    }
  }

  void TakeAnswer(const VerifyCall& call, const VerifyAnswer& answer) {
    EXPECT_EQ(answer.request_id, call.request_id);
    EXPECT_EQ(answer.session_id, id_);
    hits_ += answer.cache_hit ? 1 : 0;
    accepted_ += static_cast<int>(answer.accepted.size());
    context_.insert(context_.end(), answer.accepted.begin(), answer.accepted.end());
    ASSERT_EQ(answer.prefix_length, static_cast<int>(context_.size())) << id_;
    EXPECT_EQ(answer.correction.has_value(), !call.drafts.empty() || call.decode_on_empty);
    wire_length_ = answer.prefix_length;
    if (answer.correction) context_.push_back(*answer.correction);
    for (size_t i = 0; i < std::min(context_.size(), truth_.size()); ++i) {
      ASSERT_EQ(context_[i], truth_[i]) << id_ << " at " << i;
    }
    last_ = call;
    last_answer_ = answer;
  }

  void ExpectSameAnswer(const VerifyAnswer& answer) const {
    EXPECT_EQ(answer.accepted, last_answer_.accepted);
    EXPECT_EQ(answer.correction, last_answer_.correction);
    EXPECT_EQ(answer.prefix_length, last_answer_.prefix_length);
  }

  std::string id_;
  GenerateRequest request_;
  std::mt19937 random_;
  std::vector<int32_t> truth_;
  std::vector<int32_t> context_;  // what is known, the correction included
  int wire_length_ = 0;           // 0: the session has nothing we know of
  int calls_ = 0;
  int hits_ = 0;
  int desyncs_ = 0;
  int accepted_ = 0;
  VerifyCall last_;
  VerifyAnswer last_answer_;
};

}  // namespace talon

#endif  // TALON_ENGINE_SESSIONS_TEST_SESSION_CLIENT_H_
