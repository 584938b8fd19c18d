// A drafter that a user has written in Python, run by the real engine.
//
// Called on the engine's thread, which takes the GIL for the calls only. Whatever such a drafter
// does wrong (an exception, a wrong type, an invalid tree) only ends drafting for its sequence: the
// sequence continues with plain decoding, and the reason is kept for the caller.
#ifndef TALON_PYTHON_DRAFTER_H_
#define TALON_PYTHON_DRAFTER_H_

#include <pybind11/pybind11.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "spec/drafter.h"

namespace talon {

// Why drafting ended early, by sequence. Shared by the drafter and the callers of the engine, who
// may read it after the drafter is destroyed. Thread-safe.
class DrafterFaults {
 public:
  void Add(SequenceId sequence, std::string reason);
  // Takes the first reason of a sequence; none if there was no fault.
  std::optional<std::string> Take(SequenceId sequence);

 private:
  std::mutex mutex_;
  std::map<SequenceId, std::string> reasons_;
};

class PythonDrafter : public Drafter {
 public:
  // `drafter` is an instance of `base`, talon.Drafter: optional methods that it does not override
  // are not called. The caller holds the GIL.
  PythonDrafter(pybind11::object drafter, const pybind11::object& base,
                std::shared_ptr<DrafterFaults> faults);
  ~PythonDrafter() override;

  // The vocabulary's size, known once the model is loaded.
  void set_vocab_size(int vocab_size) { vocab_size_ = vocab_size; }

  std::string_view name() const override { return "PYTHON"; }
  Status Begin(SequenceId sequence, std::span<const int32_t> prompt) override;
  void Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) override;
  void Observe(SequenceId sequence, std::span<const int32_t> emitted) override;
  void Rewind(SequenceId sequence, int length) override;
  void End(SequenceId sequence) override;

 private:
  Status Call(const std::function<void()>& body) const;
  void Tell(bool wanted, SequenceId sequence, const std::function<void()>& body);
  void GiveUp(SequenceId sequence, const Status& why);
  Status ProposeOne(const DraftRequest& request, TokenTree* tree) const;

  pybind11::object drafter_;
  std::shared_ptr<DrafterFaults> faults_;
  int vocab_size_ = 0;
  bool begins_ = false, observes_ = false, rewinds_ = false, ends_ = false;  // overridden methods
  std::set<SequenceId> given_up_;  // sequences that are decoded plainly after a fault
};

void BindBudget(pybind11::module_* module);

}  // namespace talon

#endif  // TALON_PYTHON_DRAFTER_H_
