// talon.Model: the target alone, for research. One call at a time; calls of other threads wait.
#ifndef TALON_PYTHON_MODEL_H_
#define TALON_PYTHON_MODEL_H_

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/single_sequence.h"
#include "python/owner_process.h"
#include "setup/loader.h"
#include "spec/token_tree.h"
#include "spec/verify/accept.h"

namespace talon {

class PythonModel {
 public:
  static std::unique_ptr<PythonModel> Load(const pybind11::dict& model, const std::string& bundled);
  ~PythonModel();

  // Logits and hidden states of all tokens, and the captured features where layers are named.
  pybind11::dict Forward(const std::vector<int32_t>& tokens, const std::vector<int>& layers);
  // Verifies a tree after `tokens`, whose last one is its root. The first `prompt_length` tokens
  // count as prompt, the others as output; -1: all are prompt.
  pybind11::dict Verify(const std::vector<int32_t>& tokens, const TokenTree& tree,
                        const pybind11::dict& sampling, int prompt_length);

  std::vector<int32_t> Encode(const std::string& text) const;
  pybind11::str Decode(const std::vector<int32_t>& tokens) const;
  pybind11::dict Info() const;

 private:
  explicit PythonModel(std::unique_ptr<LoadedModel> model) : model_(std::move(model)) {}
  Result<SingleSequence> NewSequence(size_t tokens, int tree_nodes) const;
  Result<SingleSequence::Rows> RunForward(const std::vector<int32_t>& tokens,
                                          const std::vector<int>& layers);
  Result<SingleSequence::Rows> RunTree(const std::vector<int32_t>& tokens, const TokenTree& tree);

  OwnerProcess owner_;
  std::unique_ptr<LoadedModel> model_;
  std::mutex mutex_;  // guards the decoder; locked without the GIL
};

void BindModel(pybind11::module_* module);

}  // namespace talon

#endif  // TALON_PYTHON_MODEL_H_
