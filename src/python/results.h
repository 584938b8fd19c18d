// Results of requests as plain Python values, of which the package makes its dataclasses.
#ifndef TALON_PYTHON_RESULTS_H_
#define TALON_PYTHON_RESULTS_H_

#include <pybind11/pybind11.h>

#include <vector>

#include "engine/engine.h"
#include "engine/request.h"

namespace talon {

// The keys are the fields of talon.Update and talon.Result, except for those that Python adds.
// Log-probs are None unless the request asked for them.
pybind11::dict UpdateToPython(const RequestUpdate& update, bool logprobs);
pybind11::dict ResultToPython(const GenerateResult& result, bool logprobs);
pybind11::dict TreeToPython(const VerifiedTree& tree);

// State of the KV cache, read on the engine's thread without using Python.
struct KvReport {
  struct Row {
    SequenceId id = 0;
    int tokens = 0;
    int committed = 0;
    int provisional = 0;
    std::vector<int32_t> blocks;
  };
  int block_size = 0, blocks = 0, free_blocks = 0, cached_blocks = 0, used_blocks = 0;
  int running = 0, waiting = 0;
  int64_t bytes = 0, bytes_per_token = 0;
  std::vector<Row> sequences;
  Status integrity;

  static KvReport Of(const Engine& engine);
  pybind11::dict ToPython() const;
};

}  // namespace talon

#endif  // TALON_PYTHON_RESULTS_H_
