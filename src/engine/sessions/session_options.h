// The sizes of a session engine, and the cache that they give.
#ifndef TALON_ENGINE_SESSIONS_SESSION_OPTIONS_H_
#define TALON_ENGINE_SESSIONS_SESSION_OPTIONS_H_

#include <chrono>
#include <memory>

#include "base/status.h"
#include "compute/backend.h"
#include "engine/engine.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "observe/metrics.h"

namespace talon {

struct SessionOptions {
  // As for local requests: `max_sequences` calls share a pass, `kv_tokens` 0 = a context of
  // max_length for each session. The budget, acceptance and SCV are the calls' own business.
  EngineOptions engine;
  int max_sessions = 16;
  std::chrono::seconds session_ttl{300};
  int max_tree_nodes = 2048;  // largest tree of a call, its root not counted
  int max_prompt_tokens = 8192;

  static constexpr int kMaxTreeDepth = 64;
  // Rows for the trees of a pass: at least one call's largest, and what it may have to settle.
  int TreeRows() const;
};

// Fills in what the options leave to the target, and turns partial verification off where it cannot
// work.
Status FitSessionOptions(const ModelConfig& model, Backend* backend, Metrics* metrics,
                         SessionOptions* options);

// Also reserves the target's memory for block scores if partial verification needs them, and turns
// that off where there is no memory for it. REQUIRES: options that FitSessionOptions has filled in.
// Fails if the target has too few rows.
Result<std::unique_ptr<KvCache>> MakeSessionCache(Decoder* target, Backend* backend,
                                                  Metrics* metrics, SessionOptions* options);

}  // namespace talon

#endif  // TALON_ENGINE_SESSIONS_SESSION_OPTIONS_H_
