#include "python/engine.h"

#include <pybind11/stl.h>

#include <mutex>
#include <utility>

#include "base/log.h"
#include "python/raise.h"
#include "python/results.h"
#include "python/settings.h"
#include "setup/engine_settings.h"
#include "setup/ranks/load_on_ranks.h"
#include "spec/drafter_list.h"

namespace talon {

namespace py = pybind11;
using py::arg;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kSignalInterval(50);  // between checks for Ctrl-C
constexpr int kMaxWaiting = 1 << 20;         // lists of prompts may be long
// A drafter written in Python gets the budget of this one, which has the largest trees.
constexpr DrafterKind kCustomBudgetOf = DrafterKind::kSuffix;

Status EngineClosed() { return FailedPrecondition("the engine is closed"); }

// Requests from now on end with an error that has the reason.
void LogLostRank(const std::string& reason) { LogError("the engine has stopped: {}", reason); }

void RaiseIfInterrupted() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// The tokens of a prompt that is a list; nothing if it is a text.
std::optional<std::vector<int32_t>> PromptTokens(const py::object& prompt) {
  if (py::isinstance<py::str>(prompt)) return std::nullopt;
  try {
    return prompt.cast<std::vector<int32_t>>();
  } catch (const py::cast_error&) {
    throw py::type_error("prompt: must be text or a list of token ids");
  }
}

// `mode`: "exact", "fast", "off"; "" = the engine's.
SpecPvOverrides MakeSpecPv(const std::string& mode, std::optional<int> budget_tokens,
                           std::optional<float> error_target) {
  SpecPvOverrides overrides{
      .off = mode == "off", .budget_tokens = budget_tokens, .error_target = error_target};
  if (!mode.empty() && !overrides.off) overrides.mode = ValueOrRaise(ParseSpecPvMode(mode));
  return overrides;
}

// `texts`: one, or all choices.
GrammarSpec MakeGrammar(const std::string& kind, std::vector<std::string> texts) {
  if (kind.empty()) return {};
  if (kind == "choice") {
    return {.kind = GrammarSpec::Kind::kChoice, .choices = std::move(texts)};
  }
  const auto form = kind == "json_schema" ? GrammarSpec::Kind::kJsonSchema
                    : kind == "regex"     ? GrammarSpec::Kind::kRegex
                                          : GrammarSpec::Kind::kGbnf;
  return {.kind = form, .source = texts.at(0)};
}

}  // namespace

Config MakeConfig(const py::dict& model, const py::dict& speculative, const std::string& bundled) {
  Config config;
  ApplyValues(model, kModelSettings, &config);
  ApplyValues(speculative, kSpeculativeSettings, &config);
  if (!config.model.empty()) return config;
  config.model = bundled + "/tiny";
  if (config.speculative.draft_model_path.empty() && !IsAutoMethod(config.speculative.method)) {
    const auto drafters = DrafterList::Parse(config.speculative.method);
    if (drafters.ok() && !drafters->none()) {
      config.speculative.draft_model_path = bundled + "/" + BundledDraftModel(*drafters);
    }
  }
  return config;
}

// ---- PythonStream ----

// Called without the GIL.
std::optional<RequestUpdate> PythonStream::NextUpdate(milliseconds wait) {
  std::optional<RequestUpdate> update = stream_->Next(wait);
  if (update && update->tree) trees_.push_back(*update->tree);
  return update;
}

bool PythonStream::done() const {
  engine_->CheckProcess();
  return stream_->done();
}

py::object PythonStream::Next() {
  engine_->CheckProcess();
  for (;;) {
    std::optional<RequestUpdate> update;
    {
      const py::gil_scoped_release no_gil;
      update = NextUpdate(kSignalInterval);
    }
    if (update) return UpdateToPython(*update, logprobs_);
    if (stream_->done()) return py::none();
    RaiseIfInterrupted();
  }
}

py::dict PythonStream::Wait() {
  engine_->CheckProcess();
  while (!stream_->done()) {
    {
      const py::gil_scoped_release no_gil;
      const auto until = std::chrono::steady_clock::now() + kSignalInterval;
      while (!stream_->done() && std::chrono::steady_clock::now() < until) {
        NextUpdate(kSignalInterval);
      }
    }
    RaiseIfInterrupted();
  }
  const GenerateResult& result = stream_->result();
  if (result.finish == FinishReason::kError) Raise(result.error);
  py::dict out = ResultToPython(result, logprobs_);
  py::list trees;
  for (const VerifiedTree& tree : trees_) trees.append(TreeToPython(tree));
  out["trees"] = trees;
  const auto fault = engine_->TakeFault(result.id);
  out["drafter_fault"] = fault ? py::object(ToPythonText(*fault)) : py::none();
  return out;
}

void PythonStream::Cancel() { engine_->Cancel(stream_); }

// ---- PythonEngine ----

std::shared_ptr<PythonEngine> PythonEngine::Load(const Parts& parts) {
  const Config config = MakeConfig(parts.model, parts.speculative, parts.bundled);
  std::shared_ptr<PythonEngine> engine(new PythonEngine);
  std::unique_ptr<PythonDrafter> drafter;
  if (!parts.drafter.is_none()) {
    const std::string& method = config.speculative.method;
    const auto drafters = DrafterList::Parse(IsAutoMethod(method) ? "NONE" : method);
    const bool named = !config.speculative.draft_model_path.empty();
    if (named || (drafters.ok() && !drafters->none())) {
      Raise(InvalidArgument("drafter: given, but the configuration has method '{}' too",
                            config.speculative.method));
    }
    drafter = std::make_unique<PythonDrafter>(parts.drafter, parts.drafter_base, engine->faults_);
  }
  Status status;
  {
    const py::gil_scoped_release no_gil;
    status = engine->Start(config, std::move(drafter));
  }
  RaiseIfError(status);
  if (Follows(*engine->model_)) {  // and has: the script goes on where rank 0 is
    PyErr_SetObject(PyExc_SystemExit, py::int_(0).ptr());
    throw py::error_already_set();
  }
  return engine;
}

Status PythonEngine::Start(const Config& config, std::unique_ptr<PythonDrafter> drafter) {
  TALON_ASSIGN_OR_RETURN(suggested_, UsedGenerationDefaults(config));
  TALON_ASSIGN_OR_RETURN(model_, LoadOnRanks(config, LogLostRank));
  if (Follows(*model_)) return FollowLeader(model_.get());
  if (model_->engine_options.kv_tokens == 0) {
    model_->engine_options.kv_tokens =
        DefaultKvTokens(*model_, model_->engine_options.max_sequences);
  }
  DrafterList drafters = model_->drafters;
  drafter_name_ = drafters.Name();
  if (drafter != nullptr && Speculates(config)) {
    drafter->set_vocab_size(model_->target->config().vocab_size);
    drafter_name_ = drafter->name();
    drafters = kCustomBudgetOf;
  } else {
    drafter.reset();
  }
  TALON_ASSIGN_OR_RETURN(auto engine,
                         MakeEngine(model_.get(), config, drafters, std::move(drafter)));
  grammars_ = std::make_unique<GrammarCompiler>(model_->tokenizer.get());
  thread_ = std::make_unique<EngineThread>(std::move(engine), kMaxWaiting);
  return OkStatus();
}

PythonEngine::~PythonEngine() { Close(); }

void PythonEngine::CheckProcess() const { RaiseIfError(owner_.Check("engine")); }

void PythonEngine::Close() {
  if (!owner_.here()) {
    static_cast<void>(thread_.release());
    static_cast<void>(grammars_.release());
    static_cast<void>(model_.release());
    return;
  }
  const py::gil_scoped_release no_gil;
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  thread_.reset();
  grammars_.reset();
  model_.reset();
}

// REQUIRES: mutex_ is locked.
Result<const Tokenizer*> PythonEngine::OpenTokenizer() const {
  if (model_ == nullptr) return EngineClosed();
  return RequireTokenizer(*model_);
}

std::shared_ptr<PythonStream> PythonEngine::Submit(const Order& order) {
  CheckProcess();
  Config config;
  ApplyValues(order.sampling, kSamplingSettings, &config);
  GenerateRequest request{.stop = config.sampling.stop,
                          .speculate = order.speculate,
                          .drafter = order.drafter,
                          .max_draft_nodes = order.max_draft_nodes,
                          .specpv = order.specpv,
                          .watched = order.trees};
  const auto tokens = PromptTokens(order.prompt);
  const auto text = tokens ? std::string() : FromPythonText(order.prompt, "prompt");
  const auto submit = [&]() -> Result<std::shared_ptr<RequestStream>> {
    const py::gil_scoped_release no_gil;
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    if (thread_ == nullptr) return EngineClosed();
    if (tokens) {
      request.prompt = *tokens;
    } else {
      TALON_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, OpenTokenizer());
      auto encoded = tokenizer->Encode(text, /*add_special_tokens=*/true);
      if (!encoded.ok()) return encoded.status().WithContext("prompt");
      request.prompt = std::move(*encoded);
    }
    TALON_ASSIGN_OR_RETURN(request.sampling,
                           MakeSamplingParams(config.sampling, model_->tokenizer.get()));
    TALON_ASSIGN_OR_RETURN(request.sampling.grammar, grammars_->Compile(order.grammar));
    return thread_->Submit(std::move(request));
  };
  return std::make_shared<PythonStream>(shared_from_this(), ValueOrRaise(submit()),
                                        config.sampling.logprobs >= 0);
}

void PythonEngine::Cancel(const std::shared_ptr<RequestStream>& stream) {
  if (!owner_.here()) return;
  const py::gil_scoped_release no_gil;
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  if (thread_ != nullptr) thread_->Cancel(stream);
}

std::vector<int32_t> PythonEngine::Encode(const std::string& text) const {
  CheckProcess();
  const auto encode = [&]() -> Result<std::vector<int32_t>> {
    const py::gil_scoped_release no_gil;
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    TALON_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, OpenTokenizer());
    return tokenizer->Encode(text, /*add_special_tokens=*/true);
  };
  return ValueOrRaise(encode());
}

py::str PythonEngine::Decode(const std::vector<int32_t>& tokens) const {
  CheckProcess();
  const auto decode = [&]() -> Result<std::string> {
    const py::gil_scoped_release no_gil;
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    TALON_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, OpenTokenizer());
    return tokenizer->Decode(tokens, /*skip_special_tokens=*/true);
  };
  return ToPythonText(ValueOrRaise(decode()));
}

py::dict PythonEngine::Report() {
  CheckProcess();
  KvReport report;
  const auto inspect = [&]() -> Status {
    const py::gil_scoped_release no_gil;
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    if (thread_ == nullptr) return EngineClosed();
    TALON_RETURN_IF_ERROR(
        thread_->Inspect([&](const Engine& engine) { report = KvReport::Of(engine); }));
    return report.integrity;
  };
  RaiseIfError(inspect());
  return report.ToPython();
}

py::dict PythonEngine::Info() const {
  CheckProcess();
  const auto read = [&]() -> Result<py::dict> {
    const std::shared_lock<std::shared_mutex> lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || thread_ == nullptr) return EngineClosed();
    const EngineOptions& options = thread_->engine().options();
    return py::dict(
        arg("model") = ToPythonText(model_->name),
        arg("device") = model_->backend->info().description, arg("drafter") = drafter_name_,
        arg("vocab_size") = model_->target->config().vocab_size,
        arg("max_length") = options.max_length, arg("max_sequences") = options.max_sequences);
  };
  return ValueOrRaise(read());
}

py::dict PythonEngine::SuggestedSampling() const {
  py::dict values;
  const auto add = [&values](const char* key, const auto& value) {
    if (value) values[key] = *value;
  };
  add("temperature", suggested_.temperature);
  add("top_k", suggested_.top_k);
  add("top_p", suggested_.top_p);
  add("repetition_penalty", suggested_.repetition_penalty);
  return values;
}

void BindEngine(py::module_* module) {
  py::class_<PythonStream, std::shared_ptr<PythonStream>>(*module, "Stream")
      .def("next", &PythonStream::Next)
      .def("wait", &PythonStream::Wait)
      .def("cancel", &PythonStream::Cancel)
      .def_property_readonly("done", &PythonStream::done);

  const auto load = [](py::dict model, py::dict speculative, std::string bundled,
                       py::object drafter, py::object drafter_base) {
    return PythonEngine::Load({.model = std::move(model),
                               .speculative = std::move(speculative),
                               .bundled = std::move(bundled),
                               .drafter = std::move(drafter),
                               .drafter_base = std::move(drafter_base)});
  };
  const auto submit = [](PythonEngine& engine, py::object prompt, py::dict sampling, bool trees,
                         bool speculate, std::string drafter, int max_draft_nodes,
                         const std::string& specpv_mode, std::optional<int> specpv_budget_tokens,
                         std::optional<float> specpv_error_target, const std::string& grammar_kind,
                         std::vector<std::string> grammar_texts) {
    return engine.Submit(
        {.prompt = std::move(prompt),
         .sampling = std::move(sampling),
         .grammar = MakeGrammar(grammar_kind, std::move(grammar_texts)),
         .trees = trees,
         .speculate = speculate,
         .drafter = std::move(drafter),
         .max_draft_nodes = max_draft_nodes,
         .specpv = MakeSpecPv(specpv_mode, specpv_budget_tokens, specpv_error_target)});
  };
  py::class_<PythonEngine, std::shared_ptr<PythonEngine>>(*module, "Engine")
      .def(py::init(load), py::arg("model"), py::arg("speculative"), py::arg("bundled"),
           py::arg("drafter"), py::arg("drafter_base"))
      .def("submit", submit, py::arg("prompt"), py::arg("sampling"), py::kw_only(),
           py::arg("trees"), py::arg("speculate"), py::arg("drafter"), py::arg("max_draft_nodes"),
           py::arg("specpv_mode"), py::arg("specpv_budget_tokens"), py::arg("specpv_error_target"),
           py::arg("grammar_kind"), py::arg("grammar_texts"))
      .def("encode", &PythonEngine::Encode, py::arg("text"))
      .def("decode", &PythonEngine::Decode, py::arg("tokens"))
      .def("kv_report", &PythonEngine::Report)
      .def("info", &PythonEngine::Info)
      .def("suggested_sampling", &PythonEngine::SuggestedSampling)
      .def("close", &PythonEngine::Close);
}

}  // namespace talon
