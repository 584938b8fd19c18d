// From settings to a running engine.
#ifndef TALON_SETUP_LOADER_H_
#define TALON_SETUP_LOADER_H_

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/ranks/ranks.h"
#include "engine/engine.h"
#include "model/decoder.h"
#include "setup/bundled.h"
#include "setup/config.h"
#include "setup/trace_file.h"
#include "spec/drafter_list.h"
#include "spec/drafters/registry.h"
#include "spec/policy/verify_curve.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

// Makes the drafter REMOTE for a local target. `tokenizer` is that of the target (null: none) and
// must outlive the drafter.
using RemoteDrafterMaker = std::function<Result<std::unique_ptr<Drafter>>(
    const Config& config, const DraftBudget& budget, const Tokenizer* tokenizer,
    const DrafterTarget& target)>;

// A loaded target with what it runs on.
struct LoadedModel {
  std::unique_ptr<TraceFile> trace;  // null: none; destroyed last
  std::string name;                  // directory or shape
  std::unique_ptr<Ranks> ranks;      // null: the model is whole here
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Decoder> target;
  double load_seconds = 0;               // what loading took
  std::unique_ptr<Tokenizer> tokenizer;  // null if the directory or the build has none
  EngineOptions engine_options;
  DrafterList drafters;  // drafters that the settings choose
  // The drafters need a head that was found beside the model. MakeEngine goes on with SUFFIX alone
  // if it cannot be used.
  bool head_found = false;
  DrafterOptions drafter_options;
  RemoteDrafterMaker make_remote;  // given by programs that link gRPC; null: REMOTE is refused
  VerifyCurve curve;               // measured when first needed
};

// Puts something between the model and its backend.
using BackendWrapper = std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)>;

// Sets how much is logged, and how. Checks the model's settings.
Status ApplyLogSettings(const Config& config);

// Checks the settings of model and speculation, then loads config.model, or random weights of
// `shape` if that is not empty. Shows progress on a terminal. A pass gives logits for at least
// `min_output_rows` rows. `ranks`: those of config.tensor_parallel, null for 1. They have met when
// this returns: all have loaded their part of the same model. `wrap`, where given, is applied to
// the backend before anything is loaded.
Result<std::unique_ptr<LoadedModel>> LoadModel(const Config& config, const std::string& shape = "",
                                               int min_output_rows = 1,
                                               std::unique_ptr<Ranks> ranks = nullptr,
                                               const BackendWrapper& wrap = {});

// The tokenizer of a model directory; null where the directory or the build has none.
Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& dir);
// The same, or why there is none.
Result<std::unique_ptr<Tokenizer>> RequireTokenizer(const std::string& dir);
Result<const Tokenizer*> RequireTokenizer(const LoadedModel& model);

// An engine on a loaded model; `drafters` may be those of the model. A `custom` drafter replaces
// those of the list and gets their budget.
Result<std::unique_ptr<Engine>> MakeEngine(LoadedModel* model, const Config& config,
                                           const DrafterList& drafters,
                                           std::unique_ptr<Drafter> custom = nullptr);

// The directory of the model's head or draft model; "" if its drafters need none.
std::string DraftModelDir(const LoadedModel& model);

// The sampling settings, checked. `tokenizer` may be null where no setting is a text.
Result<SamplingParams> MakeSamplingParams(const SamplingConfig& config, const Tokenizer* tokenizer);

// Size of the block pool in tokens for one sequence of at most `length`, its tree included where
// that is in blocks.
int KvTokensFor(const LoadedModel& model, int64_t length);
// Default size of a server's block pool in tokens: 1 GiB, but at least one context and at most what
// `sequences` can use.
int DefaultKvTokens(const LoadedModel& model, int sequences);

// Peak resident memory of this process in bytes.
int64_t PeakMemoryBytes();

}  // namespace talon

#endif  // TALON_SETUP_LOADER_H_
