// The facts of a draft: told apart by its files, loaded once for a look.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "apps/doctor/checks.h"
#include "base/file.h"
#include "base/json.h"
#include "model/files/safetensors.h"
#include "model/heads/block_head.h"
#include "model/heads/draft_kind.h"
#include "model/heads/eagle_head.h"

namespace talon {
namespace {

constexpr const char* kLayerIds = "eagle_aux_hidden_state_layer_ids";
constexpr const char* kAuxLayerIds = "aux_hidden_state_layer_ids";
constexpr int kStandaloneBlock = 16;  // block of the STANDALONE drafter's cache, which is bf16

// "bf16", or "bf16 and f32" where the tensors differ.
Result<std::string> StoredTypes(const std::string& dir) {
  TALON_ASSIGN_OR_RETURN(const auto file, SafetensorsReader::OpenDirectory(dir));
  std::set<std::string> names;
  for (const auto& [name, tensor] : file.tensors()) {
    const bool index = tensor.dtype == DType::kI64 || tensor.dtype == DType::kBool;
    if (!index) names.insert(DTypeName(tensor.dtype));
  }
  return fmt::format("{}", fmt::join(names, " and "));
}

std::string CaptureSource(const Json& json, bool overridden) {
  if (overridden) return "--eagle3-capture-layers";
  if (json.contains(kLayerIds) || json.contains(kAuxLayerIds)) return "config.json";
  const auto eagle = json.find("eagle_config");
  const bool nested = eagle != json.end() && eagle->is_object() &&
                      (eagle->contains(kLayerIds) || eagle->contains(kAuxLayerIds));
  return nested ? "eagle_config, output indices + 1" : "the default";
}

int LongestSequence(const LoadedModel& model) {
  const int context = model.target->config().max_context;
  const int limit = model.engine_options.max_length;
  return limit > 0 ? std::min(limit, context) : context;
}

Status ExamineEagle(const LoadedModel& model, const Config& config, DraftFacts* facts) {
  const std::vector<int>& override = config.speculative.eagle3_capture_layers;
  TALON_ASSIGN_OR_RETURN(const auto head,
                         EagleHead::Load(facts->dir, *model.target, model.backend.get(),
                                         {.weights = model.drafter_options.weights,
                                          .max_rows = 1,
                                          .max_output_rows = 1,
                                          .max_length = facts->max_length,
                                          .capture_layers = override}));
  TALON_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(facts->dir + "/config.json"));
  const EagleConfig& draft = head->config();
  facts->draft_vocab = draft.draft_vocab_size;
  facts->covered.assign(facts->target_vocab, false);
  for (const int32_t id : head->target_ids()) facts->covered[id] = true;
  facts->capture_layers = draft.capture_layers;
  facts->capture_source = CaptureSource(json, !override.empty());
  facts->draft_hidden = draft.hidden_size;
  facts->draft_positions = draft.max_position_embeddings;
  facts->draft_rope = draft.rope.kind;
  facts->draft_weight_bytes = head->weight_bytes();
  KvShape kv = head->kv_shape();
  kv.dtype = KvValueType(model.engine_options.kv_dtype);
  facts->draft_kv_bytes = kv.BytesPerToken() * facts->max_length * config.max_sequences;
  return OkStatus();
}

Status ExamineBlock(const LoadedModel& model, const Config& config, DraftFacts* facts) {
  const std::vector<int>& override = config.speculative.eagle3_capture_layers;
  TALON_ASSIGN_OR_RETURN(const auto head,
                         BlockHead::Load(facts->dir, *model.target, model.backend.get(),
                                         {.weights = model.drafter_options.weights,
                                          .max_context_rows = 1,
                                          .max_length = facts->max_length,
                                          .capture_layers = override}));
  const BlockConfig& draft = head->config();
  facts->draft_vocab = draft.draft_vocab_size;
  facts->covered.assign(facts->target_vocab, false);
  for (const int32_t id : head->target_ids()) facts->covered[id] = true;
  facts->capture_layers = draft.capture_layers;
  facts->capture_source = override.empty() ? "the head's config" : "--eagle3-capture-layers";
  facts->draft_layers = draft.layers.num_layers;
  facts->draft_hidden = draft.layers.hidden_size;
  facts->draft_positions = draft.layers.max_position_embeddings;
  facts->draft_rope = draft.layers.rope.kind;
  facts->draft_weight_bytes = head->weight_bytes();
  KvShape kv = head->kv_shape();
  kv.dtype = KvValueType(model.engine_options.kv_dtype);
  facts->draft_kv_bytes = kv.BytesPerToken() * facts->max_length * config.max_sequences;
  return OkStatus();
}

Status ExamineStandalone(const LoadedModel& model, const Config& config, DraftFacts* facts) {
  TALON_ASSIGN_OR_RETURN(const ModelConfig draft, LoadModelConfig(facts->dir));
  if (draft.vocab_size != facts->target_vocab) {
    return InvalidArgument("{}: the draft model has a vocabulary of {}, the target of {}",
                           facts->dir, draft.vocab_size, facts->target_vocab);
  }
  TALON_ASSIGN_OR_RETURN(const auto loaded, Decoder::Load(facts->dir, model.backend.get(),
                                                          {.weights = model.drafter_options.weights,
                                                           .max_rows = 1,
                                                           .max_output_rows = 1}));
  facts->draft_vocab = draft.vocab_size;
  facts->covered.assign(facts->target_vocab, true);
  facts->draft_layers = draft.num_layers;
  facts->draft_hidden = draft.hidden_size;
  facts->draft_positions = draft.max_context;
  facts->draft_rope = draft.rope.kind;
  facts->draft_weight_bytes = loaded->weight_bytes();
  const KvShape kv{.num_layers = draft.num_layers,
                   .kv_heads = draft.num_kv_heads,
                   .head_dim = draft.head_dim,
                   .block_size = kStandaloneBlock,
                   .dtype = DType::kBF16};
  const int tokens = std::min(facts->max_length, draft.max_context);
  facts->draft_kv_bytes = kv.BytesPerToken() * tokens * config.max_sequences;
  const std::string own = facts->dir + "/tokenizer.json";
  const std::string target = model.name + "/tokenizer.json";
  if (FileExists(own) && FileExists(target)) {
    TALON_ASSIGN_OR_RETURN(const std::string own_text, ReadFile(own));
    TALON_ASSIGN_OR_RETURN(const std::string target_text, ReadFile(target));
    facts->same_tokenizer = own_text == target_text;
  }
  return OkStatus();
}

}  // namespace

Result<DraftFacts> ExamineDraft(const LoadedModel& model, const Config& config,
                                const std::string& kind, const std::string& dir) {
  const ModelConfig& target = model.target->config();
  DraftFacts facts{.kind = kind,
                   .dir = dir,
                   .target_vocab = target.vocab_size,
                   .target_layers = target.num_layers,
                   .target_hidden = target.hidden_size,
                   .target_positions = target.max_context,
                   .max_length = LongestSequence(model),
                   .target_weight_bytes = model.target->weight_bytes()};
  TALON_ASSIGN_OR_RETURN(const DraftKind draft, DraftKindOf(dir));
  TALON_RETURN_IF_ERROR(draft == DraftKind::kModel ? ExamineStandalone(model, config, &facts)
                        : IsBlockHead(draft)       ? ExamineBlock(model, config, &facts)
                                                   : ExamineEagle(model, config, &facts));
  TALON_ASSIGN_OR_RETURN(facts.target_types, StoredTypes(model.name));
  TALON_ASSIGN_OR_RETURN(facts.draft_types, StoredTypes(dir));
  return facts;
}

}  // namespace talon
