#include "engine/sessions/call_ender.h"

namespace talon {

void CallEnder::Settle(SessionCall* call, TimePoint now) {
  const ActiveRequest& run = *call->run;
  if (run.prompt_left() > 0) return;
  if (call->tree_rows == 0) {
    Answer(call, now);
  } else if (run.result.finish == FinishReason::kDeadEnd) {
    Abandon(call, Internal("no token has a probability"));
  } else if (run.result.finish == FinishReason::kError) {
    Abandon(call, run.result.error);
  } else if (!run.result.tokens.empty() || run.result.finish == FinishReason::kStop) {
    Answer(call, now);
  } else if (run.plain_next && call->failed_steps++ > 0) {
    Abandon(call, Internal("the step cannot be committed"));
  }
}

void CallEnder::Answer(SessionCall* call, TimePoint now) {
  ActiveRequest& run = *call->run;
  VerifyAnswer& answer = call->answer;
  for (const EmittedToken& token : run.result.tokens) {
    if (token.drafted) {
      answer.accepted.push_back(token.token);
    } else {
      answer.correction = token.token;
    }
  }
  parts_.metrics->Add(Counter::kRequestGeneratedTokens,
                      static_cast<int64_t>(run.result.tokens.size()));
  answer.finished = run.result.finish == FinishReason::kStop;
  answer.rows += static_cast<int>(run.result.stats.rows);
  Session* session = call->session;
  session->tokens = std::move(call->context);
  session->tokens.insert(session->tokens.end(), answer.accepted.begin(), answer.accepted.end());
  answer.prefix_length = static_cast<int>(session->tokens.size());
  session->sequence = std::move(run.sequence);
  session->sequence.tokens = session->tokens;
  session->partial = std::move(run.partial);
  if (call->own == nullptr) {
    session->last_request = call->asked.request_id;
    session->last_answer = answer;
    parts_.sessions->Touch(session, now);
  }
  End(call, answer);
}

void CallEnder::Abandon(SessionCall* call, const Status& why) {
  call->session->sequence = std::move(call->run->sequence);
  if (call->own == nullptr) parts_.evictor->Remove(std::exchange(call->session, nullptr), "end");
  End(call, Internal("INVARIANT: {}", why.message()));
}

void CallEnder::End(SessionCall* call, Result<VerifyAnswer> answer) {
  call->run.reset();
  if (call->own != nullptr) parts_.kv->Free(&call->own->sequence);
  finished_.push_back({call->id, std::move(answer)});
}

}  // namespace talon
