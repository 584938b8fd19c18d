#include "serve/grpc/wire.h"

#include <serve/grpc/spec_decoding.pb.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/valid_values.h"
#include "serve/grpc/wire_forest.h"
#include "serve/grpc/wire_grammar.h"
#include "serve/grpc/wire_scan.h"

namespace talon {
namespace {

constexpr size_t kMaxIdBytes = 256;
constexpr int kMaxDraftLength = 64;
constexpr int kMaxBeams = 16;

std::vector<int32_t> ToVector(const google::protobuf::RepeatedField<int32_t>& values) {
  return {values.begin(), values.end()};
}

template <typename Message>
std::string Serialize(const Message& message) {
  return message.SerializeAsString();
}

// REQUIRES: the message was scanned.
template <typename Message>
Status Parse(std::string_view bytes, const char* name, Message* message) {
  if (message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return OkStatus();
  return InvalidArgument("{}: not a valid message", name);
}

template <typename Message>
Status ScanAndParse(std::string_view bytes, const MessageShape& shape, const WireLimits& limits,
                    Message* message) {
  TALON_RETURN_IF_ERROR(ScanMessage(bytes, shape, limits));
  return Parse(bytes, shape.name, message);
}

Status CheckId(const char* name, const std::string& id) {
  if (id.size() <= kMaxIdBytes) return OkStatus();
  return InvalidArgument("{}: {} bytes, limit {}", name, id.size(), kMaxIdBytes);
}

Status CheckTemperature(float temperature) {
  if (std::isfinite(temperature) && temperature >= 0) return OkStatus();
  return InvalidArgument("BAD_TEMPERATURE: {}, must be 0 or more", temperature);
}

template <typename Message>
void WriteForest(const DraftForest& forest, TreeForm form, Message* message) {
  if (forest.empty()) return;
  if (form == TreeForm::kNested || !forest.draws.empty()) {
    WriteNested(forest, message->mutable_draft_tree());
  } else {
    WriteFlat(forest, message->mutable_flat_tree());
  }
}

void WriteTelemetry(const WorkerSpan& span, double model_seconds, int rows,
                    specsplit::TelemetryMetadata* out) {
  out->set_span_id(span.id);
  out->set_wall_time_ms(span.wall_seconds * 1e3);
  out->set_model_time_ms(model_seconds * 1e3);
  out->set_tokens_processed(rows);
  out->set_device(span.device);
}

void ReadTelemetry(const specsplit::TelemetryMetadata& from, double* model_seconds, int* rows,
                   WorkerSpan* span) {
  *model_seconds = from.model_time_ms() / 1e3;
  *rows = from.tokens_processed();
  if (span == nullptr) return;
  *span = {
      .id = from.span_id(), .wall_seconds = from.wall_time_ms() / 1e3, .device = from.device()};
}

// REQUIRES: the call has its drafts.
Status ReadSampling(const specsplit::VerifyRequest& from, VerifyCall* call) {
  TALON_RETURN_IF_ERROR(CheckTemperature(from.temperature()));
  TALON_RETURN_IF_ERROR(CheckRange("top_k", from.top_k(), {.low = 0}));
  TALON_RETURN_IF_ERROR(CheckRange("top_p", from.top_p(), {0, 1}));
  TALON_RETURN_IF_ERROR(CheckRange("min_p", from.min_p(), {0, 1}));
  call->temperature = from.temperature();
  call->top_k = from.top_k();
  call->top_p = from.top_p() == 0 ? 1.0f : from.top_p();
  call->min_p = from.min_p();
  if (from.has_seed()) call->seed = from.seed();
  const std::string& acceptance = from.acceptance();
  if (!acceptance.empty() && acceptance != "match" && acceptance != "rejection") {
    return InvalidArgument("acceptance: '{}', must be match or rejection",
                           acceptance.substr(0, kMaxIdBytes));
  }
  const bool drawn = from.temperature() > 0 && !call->drafts.draws.empty();
  call->rejection = acceptance == "rejection" || (acceptance.empty() && drawn);
  return OkStatus();
}

}  // namespace

std::string EncodeVerifyCall(const VerifyCall& call, TreeForm form) {
  specsplit::VerifyRequest message;
  message.set_request_id(call.request_id);
  message.set_session_id(call.session_id);
  *message.mutable_prompt_token_ids() = {call.prompt.begin(), call.prompt.end()};
  *message.mutable_new_token_ids() = {call.delta.begin(), call.delta.end()};
  message.set_expected_prefix_length(call.expected_prefix);
  message.set_prefix_hash(call.prefix_hash);
  WriteForest(call.drafts, form, &message);
  message.set_temperature(call.temperature);
  message.set_top_k(call.top_k);
  if (call.top_p != 1) message.set_top_p(call.top_p);
  message.set_min_p(call.min_p);
  if (call.seed) message.set_seed(*call.seed);
  *message.mutable_stop_token_ids() = {call.stop_token_ids.begin(), call.stop_token_ids.end()};
  message.set_acceptance(call.rejection ? "rejection" : "match");
  message.set_decode_on_empty(call.decode_on_empty);
  if (call.grammar.kind != GrammarSpec::Kind::kNone) {
    WriteGrammar(call.grammar, message.mutable_grammar());
    message.set_answer_start(call.answer_start);
  }
  return Serialize(message);
}

Result<VerifyCall> DecodeVerifyCall(std::string_view bytes, const WireLimits& limits) {
  constexpr MessageShape kShape = {.name = "VerifyRequest",
                                   .prompt = 2,
                                   .delta = 6,
                                   .stops = 19,
                                   .forest = 3,
                                   .flat = 16,
                                   .grammar = 25};
  specsplit::VerifyRequest message;
  TALON_RETURN_IF_ERROR(ScanAndParse(bytes, kShape, limits, &message));
  TALON_RETURN_IF_ERROR(CheckId("request_id", message.request_id()));
  TALON_RETURN_IF_ERROR(CheckId("session_id", message.session_id()));
  TALON_RETURN_IF_ERROR(
      CheckRange("expected_prefix_length", message.expected_prefix_length(), {.low = 0}));
  VerifyCall call{.request_id = message.request_id(),
                  .session_id = message.session_id(),
                  .prompt = ToVector(message.prompt_token_ids()),
                  .delta = ToVector(message.new_token_ids()),
                  .expected_prefix = message.expected_prefix_length(),
                  .prefix_hash = message.prefix_hash(),
                  .stop_token_ids = ToVector(message.stop_token_ids()),
                  .decode_on_empty = message.decode_on_empty()};
  TALON_RETURN_IF_ERROR(CheckTokens("prompt token", call.prompt, limits));
  TALON_RETURN_IF_ERROR(CheckTokens("new token", call.delta, limits));
  TALON_RETURN_IF_ERROR(CheckTokens("stop token", call.stop_token_ids, limits));
  TALON_ASSIGN_OR_RETURN(call.drafts,
                         ReadForest(message.draft_tree(), message.flat_tree(), limits));
  TALON_RETURN_IF_ERROR(ReadSampling(message, &call));
  if (!message.has_grammar()) return call;
  TALON_ASSIGN_OR_RETURN(call.grammar, ReadGrammar(message.grammar()));
  call.answer_start = message.answer_start();
  return call;
}

std::string EncodeVerifyAnswer(const VerifyAnswer& answer, const WorkerSpan& span) {
  specsplit::VerifyResponse message;
  message.set_request_id(answer.request_id);
  message.set_session_id(answer.session_id);
  *message.mutable_accepted_token_ids() = {answer.accepted.begin(), answer.accepted.end()};
  message.set_num_accepted(static_cast<int32_t>(answer.accepted.size()));
  message.set_has_correction(answer.correction.has_value());
  message.set_correction_token_id(answer.correction.value_or(0));
  message.set_cache_hit(answer.cache_hit);
  message.set_prefix_length(answer.prefix_length);
  message.set_finished(answer.finished);
  WriteTelemetry(span, answer.model_seconds, answer.rows, message.mutable_telemetry());
  return Serialize(message);
}

Result<VerifyAnswer> DecodeVerifyAnswer(std::string_view bytes, const WireLimits& limits,
                                        WorkerSpan* span) {
  constexpr MessageShape kShape = {.name = "VerifyResponse", .accepted = 2};
  specsplit::VerifyResponse message;
  TALON_RETURN_IF_ERROR(ScanAndParse(bytes, kShape, limits, &message));
  VerifyAnswer answer{.request_id = message.request_id(),
                      .session_id = message.session_id(),
                      .accepted = ToVector(message.accepted_token_ids()),
                      .cache_hit = message.cache_hit(),
                      .prefix_length = message.prefix_length(),
                      .finished = message.finished()};
  if (message.num_accepted() != static_cast<int>(answer.accepted.size())) {
    return InvalidArgument("VerifyResponse: num_accepted {}, but {} tokens", message.num_accepted(),
                           answer.accepted.size());
  }
  TALON_RETURN_IF_ERROR(CheckRange("prefix_length", answer.prefix_length, {.low = 0}));
  TALON_RETURN_IF_ERROR(CheckTokens("accepted token", answer.accepted, limits));
  if (message.has_correction()) {
    TALON_RETURN_IF_ERROR(CheckToken("correction", 0, message.correction_token_id(), limits));
    answer.correction = message.correction_token_id();
  }
  ReadTelemetry(message.telemetry(), &answer.model_seconds, &answer.rows, span);
  return answer;
}

std::string EncodeDraftCall(const DraftCall& call) {
  specsplit::DraftRequest message;
  message.set_request_id(call.request_id);
  message.set_session_id(call.session_id);
  *message.mutable_prompt_token_ids() = {call.context.begin(), call.context.end()};
  message.set_max_draft_len(call.max_length);
  message.set_num_beams(call.num_beams);
  message.set_max_nodes(call.max_nodes);
  if (call.temperature) message.set_temperature(*call.temperature);
  if (call.seed) message.set_seed(*call.seed);
  message.set_reset_cache(call.reset_cache);
  return Serialize(message);
}

Result<DraftCall> DecodeDraftCall(std::string_view bytes, const WireLimits& limits) {
  constexpr MessageShape kShape = {.name = "DraftRequest", .prompt = 2};
  specsplit::DraftRequest message;
  TALON_RETURN_IF_ERROR(ScanAndParse(bytes, kShape, limits, &message));
  TALON_RETURN_IF_ERROR(CheckId("request_id", message.request_id()));
  TALON_RETURN_IF_ERROR(CheckId("session_id", message.session_id()));
  const Range nodes{0, static_cast<double>(limits.max_tree_nodes)};
  TALON_RETURN_IF_ERROR(CheckRange("max_draft_len", message.max_draft_len(), {0, kMaxDraftLength}));
  TALON_RETURN_IF_ERROR(CheckRange("num_beams", message.num_beams(), {0, kMaxBeams}));
  TALON_RETURN_IF_ERROR(CheckRange("max_nodes", message.max_nodes(), nodes));
  DraftCall call{.request_id = message.request_id(),
                 .session_id = message.session_id(),
                 .context = ToVector(message.prompt_token_ids()),
                 .max_length = message.max_draft_len(),
                 .num_beams = message.num_beams(),
                 .max_nodes = message.max_nodes(),
                 .reset_cache = message.reset_cache()};
  if (message.has_seed()) call.seed = message.seed();
  TALON_RETURN_IF_ERROR(CheckTokens("prompt token", call.context, limits));
  if (message.has_temperature()) {
    TALON_RETURN_IF_ERROR(CheckTemperature(message.temperature()));
    call.temperature = message.temperature();
  }
  return call;
}

std::string EncodeDraftAnswer(const DraftAnswer& answer, TreeForm form, const WorkerSpan& span) {
  specsplit::DraftResponse message;
  message.set_request_id(answer.request_id);
  WriteForest(answer.drafts, form, &message);
  WriteTelemetry(span, answer.model_seconds, answer.rows, message.mutable_telemetry());
  return Serialize(message);
}

Result<DraftAnswer> DecodeDraftAnswer(std::string_view bytes, const WireLimits& limits,
                                      WorkerSpan* span) {
  constexpr MessageShape kShape = {.name = "DraftResponse", .forest = 2, .flat = 16};
  specsplit::DraftResponse message;
  TALON_RETURN_IF_ERROR(ScanAndParse(bytes, kShape, limits, &message));
  DraftAnswer answer{.request_id = message.request_id()};
  TALON_ASSIGN_OR_RETURN(answer.drafts,
                         ReadForest(message.draft_tree(), message.flat_tree(), limits));
  ReadTelemetry(message.telemetry(), &answer.model_seconds, &answer.rows, span);
  return answer;
}

std::string EncodeEndSessionCall(const std::string& session_id) {
  specsplit::EndSessionRequest message;
  message.set_session_id(session_id);
  return Serialize(message);
}

Result<std::string> DecodeEndSessionCall(std::string_view bytes) {
  specsplit::EndSessionRequest message;
  TALON_RETURN_IF_ERROR(ScanAndParse(bytes, {.name = "EndSessionRequest"}, {}, &message));
  TALON_RETURN_IF_ERROR(CheckId("session_id", message.session_id()));
  return message.session_id();
}

std::string EncodeEndSessionAnswer(const EndSessionAnswer& answer) {
  specsplit::EndSessionResponse message;
  message.set_session_id(answer.session_id);
  message.set_was_active(answer.was_active);
  return Serialize(message);
}

Result<EndSessionAnswer> DecodeEndSessionAnswer(std::string_view bytes) {
  specsplit::EndSessionResponse message;
  TALON_RETURN_IF_ERROR(ScanAndParse(bytes, {.name = "EndSessionResponse"}, {}, &message));
  return EndSessionAnswer{.session_id = message.session_id(), .was_active = message.was_active()};
}

std::string EncodePingCall() { return Serialize(specsplit::PingRequest()); }

std::string EncodePingAnswer(const PingAnswer& answer) {
  specsplit::PingResponse message;
  message.set_status(answer.status);
  message.set_worker_type(answer.worker_type);
  message.set_model_name(answer.model_name);
  message.set_vocab_size(answer.vocab_size);
  return Serialize(message);
}

Result<PingAnswer> DecodePingAnswer(std::string_view bytes) {
  specsplit::PingResponse message;
  TALON_RETURN_IF_ERROR(ScanAndParse(bytes, {.name = "PingResponse"}, {}, &message));
  TALON_RETURN_IF_ERROR(CheckRange("vocab_size", message.vocab_size(), {.low = 0}));
  return PingAnswer{.status = message.status(),
                    .worker_type = message.worker_type(),
                    .model_name = message.model_name(),
                    .vocab_size = message.vocab_size()};
}

}  // namespace talon
