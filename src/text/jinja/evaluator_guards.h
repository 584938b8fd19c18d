// What Evaluator's functions hold while they run.
#ifndef TALON_TEXT_JINJA_EVALUATOR_GUARDS_H_
#define TALON_TEXT_JINJA_EVALUATOR_GUARDS_H_

#include <memory>
#include <utility>

#include "base/status.h"
#include "text/jinja/evaluator.h"

namespace talon::jinja {

// A scope inside `parent`, the innermost until this ends.
class Evaluator::ScopeGuard {
 public:
  ScopeGuard(Evaluator* evaluator, Scope* parent)
      : evaluator_(*evaluator),
        scope_(std::make_unique<Scope>(parent)),
        outer_(std::exchange(evaluator_.scope_, scope_.get())) {}
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;
  ~ScopeGuard() {
    evaluator_.scope_ = outer_;
    if (scope_->kept()) evaluator_.kept_scopes_.push_back(std::move(scope_));
  }

 private:
  Evaluator& evaluator_;
  std::unique_ptr<Scope> scope_;
  Scope* outer_;
};

// Bounds the interpreter's recursion, which uses the stack.
class Evaluator::Depth {
 public:
  static constexpr int kMax = 600;

  explicit Depth(Evaluator* evaluator) : evaluator_(*evaluator) { ++evaluator_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  ~Depth() { --evaluator_.depth_; }

  Status Check() const {
    if (evaluator_.depth_ <= kMax) return OkStatus();
    return ResourceExhausted("the template recurses more than {} levels deep", kMax);
  }

 private:
  Evaluator& evaluator_;
};

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_EVALUATOR_GUARDS_H_
