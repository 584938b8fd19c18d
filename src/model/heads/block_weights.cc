#include "model/heads/block_weights.h"

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "model/files/quantised.h"
#include "model/files/tensor_layout.h"
#include "model/files/weight_source.h"
#include "model/heads/head_file.h"

namespace talon {
namespace {

// All tensors of a layer.
std::vector<TensorParts*> PartsOf(LayerLayout* layer) {
  return {&layer->input_norm,  &layer->post_norm,        &layer->qkv,      &layer->qkv_bias,
          &layer->q_norm,      &layer->k_norm,           &layer->output,   &layer->output_bias,
          &layer->mlp.gate_up, &layer->mlp.gate_up_bias, &layer->mlp.down, &layer->mlp.down_bias};
}

struct BlockLayout {
  TensorParts embedding, fc, fc_bias, hidden_norm, context, context_bias, norm, head;
  TensorParts markov_in, markov_out;
  std::vector<LayerLayout> layers;
  std::string d2t, t2d;  // empty: none
  int markov_rank = 0;

  std::vector<TensorSpec> All() const {
    std::vector<TensorSpec> all;
    const auto add = [&](const TensorParts& parts) {
      all.insert(all.end(), parts.begin(), parts.end());
    };
    for (const TensorParts* parts :
         {&embedding, &fc, &fc_bias, &hidden_norm, &norm, &head, &markov_in, &markov_out}) {
      add(*parts);
    }
    for (LayerLayout layer : layers) {
      for (const TensorParts* parts : PartsOf(&layer)) add(*parts);
    }
    return all;
  }
};

// k and v of a layer, for the product of the context.
void AddContext(const LayerLayout& layer, BlockLayout* layout) {
  const auto add_kv = [](const TensorParts& qkv, TensorParts* context) {
    if (!qkv.empty()) context->insert(context->end(), qkv.begin() + 1, qkv.end());
  };
  add_kv(layer.qkv, &layout->context);
  add_kv(layer.qkv_bias, &layout->context_bias);
}

// Trainers spell some names differently.
std::string CanonicalName(std::string name) {
  const std::pair<std::string_view, std::string_view> prefixes[] = {
      {"model.", ""},
      {"encoder.output_norm_enc.", "hidden_norm."},
      {"encoder.fc.", "fc."},
      {"midlayer.", "layers.0."}};
  for (const auto& [from, to] : prefixes) {
    if (name.starts_with(from)) name.replace(0, from.size(), to);
  }
  for (const char* table : {"markov_head.markov_w1", "markov_head.markov_w2"}) {
    if (name == table) name += ".weight";
  }
  return name;
}

class Finder {
 public:
  Finder(const BlockConfig& config, const SafetensorsReader& file) : config_(config), file_(file) {}

  Result<BlockLayout> Run() {
    for (const auto& [name, tensor] : file_.tensors()) {
      const auto [it, added] = actual_.emplace(CanonicalName(name), name);
      if (added) continue;
      return InvalidArgument("{}: tensors {} and {} are two spellings of one", file_.FileOf(name),
                             it->second, name);
    }
    for (const auto& [name, tensor] : file_.tensors()) {  // a quantised matrix stands for its parts
      const std::string matrix = QuantisedMatrix::MatrixOf(name);
      if (!matrix.empty()) actual_.emplace(CanonicalName(matrix), matrix);
    }
    FindFeatures();
    FindLayers();
    TALON_RETURN_IF_ERROR(FindVocabulary());
    TALON_RETURN_IF_ERROR(FindMarkov());
    TALON_RETURN_IF_ERROR(CheckRest());
    return std::move(layout_);
  }

 private:
  bool Has(const std::string& canonical) const { return actual_.contains(canonical); }
  TensorSpec Spec(const std::string& canonical, std::vector<int64_t> shape) {
    used_.insert(canonical);
    const auto it = actual_.find(canonical);
    return {it == actual_.end() ? canonical : it->second, std::move(shape)};
  }
  Status Misfit(const std::string& name, const std::string& problem) const {
    return InvalidArgument("{}: tensor {} {}", file_.FileOf(name), name, problem);
  }

  void FindFeatures() {
    const int64_t hidden = config_.layers.hidden_size;
    layout_.fc = {Spec("fc.weight", {hidden, config_.features_size()})};
    if (Has("fc.bias")) layout_.fc_bias = {Spec("fc.bias", {hidden})};
    layout_.hidden_norm = {Spec("hidden_norm.weight", {hidden})};
    layout_.norm = {Spec("norm.weight", {hidden})};
  }

  // Those of a decoder, under the names of this file.
  void FindLayers() {
    layout_.layers = LayoutOf(config_.layers).layers;
    for (LayerLayout& layer : layout_.layers) {
      for (TensorParts* parts : PartsOf(&layer)) {
        for (TensorSpec& spec : *parts) spec = Spec(CanonicalName(spec.name), spec.shape);
      }
      AddContext(layer, &layout_);
    }
  }

  Status FindVocabulary() {
    const int64_t hidden = config_.layers.hidden_size;
    const int64_t vocab = config_.layers.vocab_size;
    const bool same_hidden = hidden == config_.target_hidden_size;
    if (Has("embed_tokens.weight")) {
      layout_.embedding = {Spec("embed_tokens.weight", {vocab, hidden})};
    } else if (!same_hidden) {
      return Misfit("embed_tokens.weight", "is missing, and the target's has another size");
    }
    if (Has("lm_head.weight")) {
      layout_.head = {Spec("lm_head.weight", {config_.draft_vocab_size, hidden})};
    } else if (!same_hidden || config_.draft_vocab_size != vocab) {
      return Misfit("lm_head.weight", "is missing, and the target's has another size");
    }
    if (Has("d2t")) {
      layout_.d2t = Spec("d2t", {}).name;
    } else if (config_.draft_vocab_size != vocab) {
      return Misfit("d2t", fmt::format("is missing, but draft_vocab_size {} is below vocab_size {}",
                                       config_.draft_vocab_size, vocab));
    }
    if (Has("t2d")) layout_.t2d = Spec("t2d", {}).name;
    return OkStatus();
  }

  Status FindMarkov() {
    if (!config_.markov) return OkStatus();
    const TensorView* table = file_.Find(Spec("markov_head.markov_w1.weight", {}).name);
    if (table == nullptr || table->shape.size() != 2) {
      return Misfit("markov_head.markov_w1.weight", "is missing or no matrix: not a DSpark head");
    }
    const int64_t rank = table->shape[1];
    layout_.markov_rank = static_cast<int>(rank);
    layout_.markov_in = {Spec("markov_head.markov_w1.weight", {config_.layers.vocab_size, rank})};
    layout_.markov_out = {Spec("markov_head.markov_w2.weight", {config_.draft_vocab_size, rank})};
    return OkStatus();
  }

  // Tensors that are left over: parts of the head must not be, others are ignored.
  Status CheckRest() const {
    for (const auto& [canonical, name] : actual_) {
      const std::string matrix = QuantisedMatrix::MatrixOf(canonical);
      if (used_.contains(canonical) || used_.contains(matrix)) continue;
      if (canonical.ends_with("inv_freq")) continue;
      for (const char* part :
           {"layers.", "markov_head.", "candidate_selector.", "mask_embedding"}) {
        if (!canonical.starts_with(part)) continue;
        return Misfit(name,
                      "is part of a head that is unsupported here, or not accounted for by "
                      "config.json");
      }
      LogInfo("{}: tensor {} is not used", file_.FileOf(name), name);
    }
    return OkStatus();
  }

  const BlockConfig& config_;
  const SafetensorsReader& file_;
  std::map<std::string, std::string> actual_;  // by canonical name
  std::set<std::string> used_;                 // canonical names
  BlockLayout layout_;
};

// The least that a head can have, by its canonical names.
BlockLayout LeastLayout(const BlockConfig& config) {
  const int64_t hidden = config.layers.hidden_size;
  BlockLayout layout;
  layout.fc = {{"fc.weight", {hidden, config.features_size()}}};
  layout.hidden_norm = {{"hidden_norm.weight", {hidden}}};
  layout.norm = {{"norm.weight", {hidden}}};
  layout.layers = LayoutOf(config.layers).layers;
  for (const LayerLayout& layer : layout.layers) AddContext(layer, &layout);
  return layout;
}

Status LoadEnds(const BlockLayout& layout, WeightLoader* loader, BlockWeights* weights) {
  TALON_ASSIGN_OR_RETURN(weights->fc, loader->Matrix(layout.fc));
  TALON_ASSIGN_OR_RETURN(weights->fc_bias, loader->Vector(layout.fc_bias));
  TALON_ASSIGN_OR_RETURN(weights->hidden_norm, loader->Vector(layout.hidden_norm));
  TALON_ASSIGN_OR_RETURN(weights->context, loader->Matrix(layout.context));
  TALON_ASSIGN_OR_RETURN(weights->context_bias, loader->Vector(layout.context_bias));
  TALON_ASSIGN_OR_RETURN(weights->norm, loader->Vector(layout.norm));
  if (!layout.embedding.empty()) {
    TALON_ASSIGN_OR_RETURN(weights->embedding, loader->Table(layout.embedding));
  }
  if (!layout.head.empty()) {
    TALON_ASSIGN_OR_RETURN(weights->head, loader->Matrix(layout.head));
  }
  weights->markov_rank = layout.markov_rank;
  if (layout.markov_rank > 0) {
    TALON_ASSIGN_OR_RETURN(weights->markov_in, loader->Vector(layout.markov_in));
    TALON_ASSIGN_OR_RETURN(weights->markov_out, loader->Matrix(layout.markov_out));
  }
  return OkStatus();
}

Result<BlockWeights> LoadAll(const BlockLayout& layout, std::vector<int32_t> target_ids,
                             WeightLoader* loader) {
  BlockWeights weights;
  weights.target_ids = std::move(target_ids);
  for (const LayerLayout& layer : layout.layers) {
    TALON_ASSIGN_OR_RETURN(LayerWeights loaded, LoadLayerWeights(layer, loader));
    weights.layers.push_back(std::move(loaded));
  }
  TALON_RETURN_IF_ERROR(LoadEnds(layout, loader, &weights));
  weights.bytes = loader->matrix_bytes() + loader->other_bytes();
  return weights;
}

}  // namespace

Result<BlockWeights> LoadBlockWeights(const std::string& dir, const BlockConfig& config,
                                      Backend* backend, WeightFormat format) {
  if (FileExists(dir + "/mask_embedding.pt")) {
    return Unimplemented("{}: mask_embedding.pt: a mask embedding of its own is unsupported", dir);
  }
  TALON_ASSIGN_OR_RETURN(SafetensorsReader file, OpenHeadFile(dir));
  TALON_ASSIGN_OR_RETURN(const BlockLayout layout, Finder(config, file).Run());
  const HeadVocabulary vocabulary{config.draft_vocab_size, config.layers.vocab_size};
  TALON_ASSIGN_OR_RETURN(auto target_ids, ReadTargetIds(file, layout.d2t, vocabulary));
  TALON_RETURN_IF_ERROR(CheckTargetMask(file, layout.t2d, vocabulary));
  TALON_ASSIGN_OR_RETURN(const auto source,
                         NewFileWeights(std::move(file), layout.All(), config.layers.quantised));
  WeightLoader loader(source.get(), backend, format);
  return LoadAll(layout, std::move(target_ids), &loader);
}

Result<BlockWeights> RandomBlockWeights(const BlockConfig& config, Backend* backend,
                                        WeightFormat format, uint64_t seed) {
  const auto source = NewRandomWeights(DType::kBF16, seed);
  WeightLoader loader(source.get(), backend, format);
  std::vector<int32_t> target_ids(config.layers.vocab_size);
  std::iota(target_ids.begin(), target_ids.end(), 0);
  return LoadAll(LeastLayout(config), std::move(target_ids), &loader);
}

}  // namespace talon
