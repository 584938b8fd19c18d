#include "python/drafter.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/log.h"
#include "python/tree.h"

namespace talon {

namespace py = pybind11;

namespace {

// Bound for reasons that are never taken because their streams were dropped.
constexpr size_t kMaxFaults = 4096;

// What a Python drafter gets besides the tokens.
struct Budget {
  SequenceId sequence = 0;
  int max_nodes = 0;
  int max_depth = 0;
  int top_k = 0;
  float temperature = 0;
};

py::list TokenList(std::span<const int32_t> tokens) {
  py::list list(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) list[i] = py::int_(tokens[i]);
  return list;
}

// "ValueError: no such state (drafter.py:12)": the last line that ran names the place.
std::string Describe(const py::error_already_set& error) {
  std::string text = py::str(error.type().attr("__name__"));
  try {
    const std::string message = py::str(error.value());
    if (!message.empty()) text += ": " + message;
    py::object at = error.trace();
    if (!at || at.is_none()) return text;
    while (!at.attr("tb_next").is_none()) at = at.attr("tb_next");
    return fmt::format("{} ({}:{})", text,
                       std::string(py::str(at.attr("tb_frame").attr("f_code").attr("co_filename"))),
                       at.attr("tb_lineno").cast<int>());
  } catch (const py::error_already_set&) {  // its __str__ raises
    return text;
  }
}

// The user's tree in the form that the engine takes: breadth-first, within the budget.
Result<TokenTree> Accepted(const TokenTree& given, const DraftRequest& request, int vocab_size) {
  const int32_t root = request.tokens.back();
  if (given.tokens[0] != root) {
    return InvalidArgument("tree: node 0 is {}, must be the last token {}", given.tokens[0], root);
  }
  for (int node = 0; node < given.size(); ++node) {
    const float prob = given.probs[node];
    if (!(prob >= 0 && prob <= 1)) {
      return InvalidArgument("tree: node {} has probability {}, must be 0 to 1", node, prob);
    }
  }
  TokenTree tree = CanonicalTree(given);
  const std::vector<int32_t> depths = TreeDepths(tree.parents);
  int kept = std::min(tree.size(), request.budget.max_nodes);
  while (depths[kept - 1] > request.budget.max_depth) --kept;
  tree.Truncate(kept);
  constexpr int kNoLimit = std::numeric_limits<int>::max();
  TALON_RETURN_IF_ERROR(ValidateTree(tree, {.max_nodes = request.budget.max_nodes,
                                            .max_depth = request.budget.max_depth,
                                            .vocab_size = vocab_size,
                                            .max_length = kNoLimit}));
  return tree;
}

}  // namespace

// ---- DrafterFaults ----

void DrafterFaults::Add(SequenceId sequence, std::string reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  reasons_.emplace(sequence, std::move(reason));
  if (reasons_.size() > kMaxFaults) reasons_.erase(reasons_.begin());
}

std::optional<std::string> DrafterFaults::Take(SequenceId sequence) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto node = reasons_.extract(sequence);
  if (node.empty()) return std::nullopt;
  return node.mapped();
}

// ---- PythonDrafter ----

PythonDrafter::PythonDrafter(py::object drafter, const py::object& base,
                             std::shared_ptr<DrafterFaults> faults)
    : drafter_(std::move(drafter)), faults_(std::move(faults)) {
  const py::object type = py::type::of(drafter_);
  const auto overrides = [&](const char* name) { return !type.attr(name).is(base.attr(name)); };
  begins_ = overrides("begin");
  observes_ = overrides("observe");
  rewinds_ = overrides("rewind");
  ends_ = overrides("end");
}

PythonDrafter::~PythonDrafter() {
  const py::gil_scoped_acquire gil;
  drafter_ = py::object();
}

// Runs `body` with the GIL; what it throws becomes a status.
Status PythonDrafter::Call(const std::function<void()>& body) const {
  const py::gil_scoped_acquire gil;
  try {
    body();
  } catch (const py::error_already_set& error) {
    return Internal("{}", Describe(error));
  } catch (const std::exception& error) {
    return Internal("{}", error.what());
  }
  return OkStatus();
}

void PythonDrafter::GiveUp(SequenceId sequence, const Status& why) {
  if (!given_up_.insert(sequence).second) return;
  LogFallback("tree", fmt::format("drafter_failed; plain decoding (sequence {}: {})", sequence,
                                  why.message()));
  faults_->Add(sequence, why.message());
}

Status PythonDrafter::Begin(SequenceId sequence, std::span<const int32_t> prompt) {
  if (!begins_) return OkStatus();
  const Status status = Call([&] { drafter_.attr("begin")(sequence, TokenList(prompt)); });
  if (!status.ok()) faults_->Add(sequence, status.message());
  return status;
}

Status PythonDrafter::ProposeOne(const DraftRequest& request, TokenTree* tree) const {
  const Budget budget{.sequence = request.sequence,
                      .max_nodes = request.budget.max_nodes,
                      .max_depth = request.budget.max_depth,
                      .top_k = request.budget.top_k,
                      .temperature = request.temperature};
  const py::object answer = drafter_.attr("propose")(TokenList(request.tokens), budget);
  if (answer.is_none()) return OkStatus();
  if (!py::isinstance<TokenTree>(answer)) {
    return InvalidArgument("propose returned {}, must be a TokenTree or None",
                           std::string(py::str(py::type::of(answer).attr("__name__"))));
  }
  TALON_ASSIGN_OR_RETURN(*tree, Accepted(answer.cast<TokenTree>(), request, vocab_size_));
  return OkStatus();
}

void PythonDrafter::Propose(std::span<const DraftRequest> requests, std::span<TokenTree> trees) {
  for (size_t i = 0; i < requests.size(); ++i) {
    if (given_up_.contains(requests[i].sequence)) continue;
    Status refused = OkStatus();
    Status status = Call([&] { refused = ProposeOne(requests[i], &trees[i]); });
    if (status.ok()) status = refused;
    if (!status.ok()) GiveUp(requests[i].sequence, status);
  }
}

void PythonDrafter::Tell(bool wanted, SequenceId sequence, const std::function<void()>& body) {
  if (!wanted || given_up_.contains(sequence)) return;
  const Status status = Call(body);
  if (!status.ok()) GiveUp(sequence, status);
}

void PythonDrafter::Observe(SequenceId sequence, std::span<const int32_t> emitted) {
  Tell(observes_, sequence, [&] { drafter_.attr("observe")(sequence, TokenList(emitted)); });
}

void PythonDrafter::Rewind(SequenceId sequence, int length) {
  Tell(rewinds_, sequence, [&] { drafter_.attr("rewind")(sequence, length); });
}

void PythonDrafter::End(SequenceId sequence) {
  Tell(ends_, sequence, [&] { drafter_.attr("end")(sequence); });
  given_up_.erase(sequence);
}

void BindBudget(py::module_* module) {
  py::class_<Budget>(*module, "Budget", "What a drafter may propose for a sequence in one step.")
      .def_readonly("sequence", &Budget::sequence, "The sequence, as begin and observe name it.")
      .def_readonly("max_nodes", &Budget::max_nodes, "Nodes of the tree, root included.")
      .def_readonly("max_depth", &Budget::max_depth, "Nodes of a path after the root.")
      .def_readonly("top_k", &Budget::top_k, "Children per expansion, as configured.")
      .def_readonly("temperature", &Budget::temperature, "The request's.");
}

}  // namespace talon
