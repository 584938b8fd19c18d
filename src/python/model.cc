#include "python/model.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <span>
#include <utility>

#include "engine/end_tokens.h"
#include "python/engine.h"
#include "python/raise.h"
#include "python/settings.h"
#include "python/tree.h"

namespace talon {

namespace py = pybind11;
using py::arg;

namespace {

// Most rows of a pass, and so most nodes of a tree.
constexpr int kOutputRows = 512;

// Logits of a tree's nodes in host memory, for acceptance.
class HostRows : public TreeRows {
 public:
  HostRows(std::span<const float> logits, int vocab_size, const BoundSampler& sampler)
      : logits_(logits), vocab_size_(vocab_size), sampler_(sampler) {}

  Choice Choose(int node, std::span<const int32_t> path) override {
    std::vector<float> row = Row(node);
    return sampler_.Choose(row, path);
  }
  bool Distribution(int node, std::span<const int32_t> path, std::vector<float>* probs) override {
    std::vector<float> row = Row(node);
    return sampler_.Distribution(row, path, probs);
  }

 private:
  std::vector<float> Row(int node) const {  // a copy, because the sampler overwrites it
    const auto row = logits_.subspan(static_cast<size_t>(node) * vocab_size_, vocab_size_);
    return {row.begin(), row.end()};
  }

  std::span<const float> logits_;
  size_t vocab_size_;
  BoundSampler sampler_;
};

// The array owns the values: nothing is copied.
py::array_t<float> ToArray(std::vector<float> values, std::vector<py::ssize_t> shape) {
  auto* owned = new std::vector<float>(std::move(values));
  const py::capsule owner(owned,
                          [](void* pointer) { delete static_cast<std::vector<float>*>(pointer); });
  return py::array_t<float>(std::move(shape), owned->data(), owner);
}

}  // namespace

std::unique_ptr<PythonModel> PythonModel::Load(const py::dict& model, const std::string& bundled) {
  Config config = MakeConfig(model, py::dict(), bundled);
  config.max_sequences = 1;
  const auto load = [&] {
    const py::gil_scoped_release no_gil;
    return LoadModel(config, "", kOutputRows);
  };
  return std::unique_ptr<PythonModel>(new PythonModel(ValueOrRaise(load())));
}

PythonModel::~PythonModel() {
  if (!owner_.here()) static_cast<void>(model_.release());  // the child of a fork() frees nothing
}

Result<SingleSequence> PythonModel::NewSequence(size_t tokens, int tree_nodes) const {
  const ModelConfig& config = model_->target->config();
  if (tokens > static_cast<size_t>(config.max_context)) {
    return InvalidArgument("tokens: {}, the context holds {}", tokens, config.max_context);
  }
  // A cache of the engine's type, so that logits are bitwise those of the engine.
  return SingleSequence::Create(model_->target.get(), model_->backend.get(),
                                {.max_tokens = static_cast<int>(tokens),
                                 .max_tree = tree_nodes,
                                 .kv_dtype = model_->engine_options.kv_dtype});
}

// ---- Forward ----

Result<SingleSequence::Rows> PythonModel::RunForward(const std::vector<int32_t>& tokens,
                                                     const std::vector<int>& layers) {
  if (tokens.empty()) return InvalidArgument("tokens: none");
  TALON_RETURN_IF_ERROR(owner_.Check("model"));
  const py::gil_scoped_release no_gil;
  const std::lock_guard<std::mutex> lock(mutex_);
  TALON_RETURN_IF_ERROR(model_->target->SetCaptureLayers(layers));
  TALON_ASSIGN_OR_RETURN(SingleSequence sequence, NewSequence(tokens.size(), 1));
  return sequence.Append(tokens);
}

py::dict PythonModel::Forward(const std::vector<int32_t>& tokens, const std::vector<int>& layers) {
  SingleSequence::Rows rows = ValueOrRaise(RunForward(tokens, layers));
  const ModelConfig& config = model_->target->config();
  const auto count = static_cast<py::ssize_t>(tokens.size());
  py::dict out(arg("logits") = ToArray(std::move(rows.logits), {count, config.vocab_size}),
               arg("hidden") = ToArray(std::move(rows.hidden), {count, config.hidden_size}),
               arg("features") = py::none());
  if (!layers.empty()) {
    const auto captured = static_cast<py::ssize_t>(layers.size());
    out["features"] = ToArray(std::move(rows.features), {count, captured, config.hidden_size});
  }
  return out;
}

// ---- Verify ----

Result<SingleSequence::Rows> PythonModel::RunTree(const std::vector<int32_t>& tokens,
                                                  const TokenTree& tree) {
  TALON_RETURN_IF_ERROR(owner_.Check("model"));
  const py::gil_scoped_release no_gil;
  const std::lock_guard<std::mutex> lock(mutex_);
  TALON_RETURN_IF_ERROR(model_->target->SetCaptureLayers({}));
  TALON_ASSIGN_OR_RETURN(SingleSequence sequence, NewSequence(tokens.size(), tree.size()));
  const auto prefix = std::span(tokens).first(tokens.size() - 1);
  if (!prefix.empty()) TALON_RETURN_IF_ERROR(sequence.AppendGreedy(prefix).status());
  return sequence.Tree(tree.tokens, tree.parents);
}

py::dict PythonModel::Verify(const std::vector<int32_t>& tokens, const TokenTree& tree,
                             const py::dict& sampling, int prompt_length) {
  const ModelConfig& model = model_->target->config();
  if (tokens.empty()) Raise(InvalidArgument("tokens: none"));
  RaiseIfError(ValidateTree(tree, {.max_nodes = kOutputRows,
                                   .max_depth = kOutputRows,
                                   .vocab_size = model.vocab_size,
                                   .committed_len = static_cast<int>(tokens.size()) - 1,
                                   .max_length = model.max_context}));
  if (tree.tokens[0] != tokens.back()) {
    Raise(InvalidArgument("tree: node 0 is {}, must be the last token {}", tree.tokens[0],
                          tokens.back()));
  }
  Config config;
  ApplyValues(sampling, kSamplingSettings, &config);
  const SamplingParams params =
      ValueOrRaise(MakeSamplingParams(config.sampling, model_->tokenizer.get()));
  RaiseIfError(params.Validate(model.vocab_size));

  SingleSequence::Rows rows = ValueOrRaise(RunTree(tokens, tree));
  const std::span<const int32_t> all(tokens);
  const size_t prompt =
      prompt_length < 0 ? all.size() : std::min<size_t>(prompt_length, all.size());
  Sampler sampler(params, EndTokens(model, model_->tokenizer.get()), all.first(prompt));
  sampler.Observe(all.subspan(prompt));
  HostRows host(rows.logits, model.vocab_size, sampler.At(all));
  const Acceptance acceptance = AcceptMatch(tree, host);
  std::vector<int32_t> accepted;
  for (size_t i = 1; i < acceptance.path.size(); ++i) {
    accepted.push_back(tree.tokens[acceptance.path[i]]);
  }
  py::dict out(arg("path") = acceptance.path, arg("accepted") = accepted, arg("bonus") = py::none(),
               arg("seed") = sampler.seed());
  if (!acceptance.dead_end) out["bonus"] = acceptance.choices.back().token;
  out["logits"] = ToArray(std::move(rows.logits), {tree.size(), model.vocab_size});
  return out;
}

// ---- Text ----

std::vector<int32_t> PythonModel::Encode(const std::string& text) const {
  const Tokenizer* tokenizer = ValueOrRaise(RequireTokenizer(*model_));
  return ValueOrRaise(tokenizer->Encode(text, /*add_special_tokens=*/true));
}

py::str PythonModel::Decode(const std::vector<int32_t>& tokens) const {
  const Tokenizer* tokenizer = ValueOrRaise(RequireTokenizer(*model_));
  return ToPythonText(tokenizer->Decode(tokens, /*skip_special_tokens=*/true));
}

py::dict PythonModel::Info() const {
  const ModelConfig& config = model_->target->config();
  return py::dict(arg("model") = ToPythonText(model_->name),
                  arg("device") = model_->backend->info().description,
                  arg("vocab_size") = config.vocab_size, arg("hidden_size") = config.hidden_size,
                  arg("num_layers") = config.num_layers, arg("max_length") = config.max_context);
}

void BindModel(py::module_* module) {
  py::class_<PythonModel>(*module, "Model")
      .def(py::init(&PythonModel::Load), py::arg("model"), py::arg("bundled"))
      .def("forward", &PythonModel::Forward, py::arg("tokens"), py::arg("capture_layers"))
      .def("verify", &PythonModel::Verify, py::arg("tokens"), py::arg("tree"), py::arg("sampling"),
           py::arg("prompt_length"))
      .def("encode", &PythonModel::Encode, py::arg("text"))
      .def("decode", &PythonModel::Decode, py::arg("tokens"))
      .def("info", &PythonModel::Info);
}

}  // namespace talon
