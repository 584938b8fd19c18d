// Remote calls as bytes of spec_decoding.proto, and back.
//
// The only place that knows the messages. Every message is checked against limits before it is
// parsed, in time linear in its bytes and without recursion. Errors are InvalidArgument and begin
// with the detail that clients of the protocol look for: PROMPT_TOO_LONG, TREE_TOO_LARGE,
// TREE_INVALID, TOKEN_OUT_OF_RANGE or BAD_TEMPERATURE. Thread-safe.
#ifndef TALON_SERVE_GRPC_WIRE_H_
#define TALON_SERVE_GRPC_WIRE_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "engine/remote_calls.h"

namespace talon {

struct WireLimits {
  int max_tree_nodes = 2048;
  int max_tree_depth = 64;
  int max_prompt_tokens = 8192;  // limit of the prompt, and of the delta
  int vocab_size = 0;            // 0: not known, tokens only may not be negative
};

// Drafts travel nested (SpecSplit's TokenNode) or flat (ours). Only nested ones carry what a node
// was drawn from, so forests with draws are always sent nested.
enum class TreeForm { kFlat, kNested };

// The times that a worker reports with its answer.
struct WorkerSpan {
  std::string id;
  double wall_seconds = 0;
  std::string device;
};

struct EndSessionAnswer {
  std::string session_id;
  bool was_active = false;
};

// Decoded forests are in depth order, siblings in the order they were sent. Siblings of one token
// are an error.
std::string EncodeVerifyCall(const VerifyCall& call, TreeForm form = TreeForm::kFlat);
Result<VerifyCall> DecodeVerifyCall(std::string_view bytes, const WireLimits& limits);

std::string EncodeVerifyAnswer(const VerifyAnswer& answer, const WorkerSpan& span);
// `span` may be null.
Result<VerifyAnswer> DecodeVerifyAnswer(std::string_view bytes, const WireLimits& limits,
                                        WorkerSpan* span);

// A call with `max_nodes` is answered flat; one without may be SpecSplit's, which reads nested
// drafts only.
std::string EncodeDraftCall(const DraftCall& call);
Result<DraftCall> DecodeDraftCall(std::string_view bytes, const WireLimits& limits);
inline TreeForm AnswerForm(const DraftCall& call) {
  return call.max_nodes > 0 ? TreeForm::kFlat : TreeForm::kNested;
}

std::string EncodeDraftAnswer(const DraftAnswer& answer, TreeForm form, const WorkerSpan& span);
Result<DraftAnswer> DecodeDraftAnswer(std::string_view bytes, const WireLimits& limits,
                                      WorkerSpan* span);

std::string EncodeEndSessionCall(const std::string& session_id);
Result<std::string> DecodeEndSessionCall(std::string_view bytes);  // the session's id
std::string EncodeEndSessionAnswer(const EndSessionAnswer& answer);
Result<EndSessionAnswer> DecodeEndSessionAnswer(std::string_view bytes);

std::string EncodePingCall();
std::string EncodePingAnswer(const PingAnswer& answer);
Result<PingAnswer> DecodePingAnswer(std::string_view bytes);

}  // namespace talon

#endif  // TALON_SERVE_GRPC_WIRE_H_
