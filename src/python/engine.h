// The engine behind talon.Engine, and one request of it.
//
// Callers are Python threads that hold the GIL; every function that may wait or compute gives it up
// meanwhile, and waits look for signals now and then.
#ifndef TALON_PYTHON_ENGINE_H_
#define TALON_PYTHON_ENGINE_H_

#include <pybind11/pybind11.h>

#include <chrono>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "engine/engine_thread.h"
#include "engine/grammar_compiler.h"
#include "python/drafter.h"
#include "python/owner_process.h"
#include "setup/config.h"
#include "setup/generation_defaults.h"
#include "setup/loader.h"

namespace talon {

class PythonEngine;

// One submitted request. Used by one Python thread at a time, but for Cancel.
class PythonStream {
 public:
  PythonStream(std::shared_ptr<PythonEngine> engine, std::shared_ptr<RequestStream> stream,
               bool logprobs)
      : engine_(std::move(engine)), stream_(std::move(stream)), logprobs_(logprobs) {}

  // The next update, or None after the last one.
  pybind11::object Next();
  // The whole result; waits for it. Updates that were not read are dropped, their trees kept.
  pybind11::dict Wait();
  void Cancel();
  bool done() const;

 private:
  std::optional<RequestUpdate> NextUpdate(std::chrono::milliseconds wait);

  std::shared_ptr<PythonEngine> engine_;  // shared: the last stream may outlive talon.Engine
  std::shared_ptr<RequestStream> stream_;
  bool logprobs_;
  std::vector<VerifiedTree> trees_;  // trees of the updates so far, if the request is watched
};

class PythonEngine : public std::enable_shared_from_this<PythonEngine> {
 public:
  // What talon.Engine gives: values of settings by key, and where the bundled models are.
  struct Parts {
    pybind11::dict model;
    pybind11::dict speculative;
    std::string bundled;
    pybind11::object drafter;       // None: the configured method
    pybind11::object drafter_base;  // talon.Drafter
  };
  static std::shared_ptr<PythonEngine> Load(const Parts& parts);
  ~PythonEngine();

  struct Order {
    pybind11::object prompt;  // text or a list of tokens
    pybind11::dict sampling;
    GrammarSpec grammar;  // what the text must match
    bool trees = false;
    bool speculate = true;
    std::string drafter;  // one of the engine's, by name; "" = all that it has
    int max_draft_nodes = 0;
    SpecPvOverrides specpv;
  };
  std::shared_ptr<PythonStream> Submit(const Order& order);
  void Cancel(const std::shared_ptr<RequestStream>& stream);
  // What went wrong in the Python drafter of a request, once.
  std::optional<std::string> TakeFault(RequestId id) { return faults_->Take(id); }

  std::vector<int32_t> Encode(const std::string& text) const;
  pybind11::str Decode(const std::vector<int32_t>& tokens) const;
  pybind11::dict Report();
  pybind11::dict Info() const;
  // Sampling that the model suggests and the configuration takes.
  pybind11::dict SuggestedSampling() const;
  // Ends all requests and frees everything. Again: does nothing. After fork() the child frees
  // nothing: what it would wait for is not there.
  void Close();
  // Raises in a process that came from this one by fork().
  void CheckProcess() const;

 private:
  PythonEngine() = default;
  // On a rank above 0 it returns when rank 0 has ended.
  Status Start(const Config& config, std::unique_ptr<PythonDrafter> drafter);
  Result<const Tokenizer*> OpenTokenizer() const;

  OwnerProcess owner_;
  std::shared_ptr<DrafterFaults> faults_ = std::make_shared<DrafterFaults>();
  GenerationDefaults suggested_;
  std::string drafter_name_;  // name of the list, or of the Python drafter
  // Guards those below, which only Close changes. Locked without the GIL, which the engine's
  // thread may be waiting for.
  mutable std::shared_mutex mutex_;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<GrammarCompiler> grammars_;  // for the model's tokenizer
  std::unique_ptr<EngineThread> thread_;
};

// Settings for the engine. Where the user names no model: the bundled one and its draft model.
Config MakeConfig(const pybind11::dict& model, const pybind11::dict& speculative,
                  const std::string& bundled);

void BindEngine(pybind11::module_* module);

}  // namespace talon

#endif  // TALON_PYTHON_ENGINE_H_
