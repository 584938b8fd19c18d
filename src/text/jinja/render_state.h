// What the statements and the expressions of one render share: the scope they are in, how deep
// they are, and what they may use.
#ifndef TALON_TEXT_JINJA_RENDER_STATE_H_
#define TALON_TEXT_JINJA_RENDER_STATE_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace talon::jinja {

// Names and values of one block: the template itself, a loop's body, a macro's call. Inner scopes
// see outer ones; assignments stay in the innermost.
class Scope {
 public:
  explicit Scope(Scope* parent) : parent_(parent) {}
  const Value* Find(const std::string& name) const;
  void Assign(const std::string& name, Value value) { variables_[name] = std::move(value); }
  void Clear() { variables_.clear(); }
  // A macro defined here may be called later: this scope and those around it must stay.
  void Keep();
  bool kept() const { return kept_; }

 private:
  Scope* parent_;
  bool kept_ = false;
  std::map<std::string, Value> variables_;
};

struct RenderState {
  Runtime runtime;
  Scope* scope = nullptr;                           // the innermost
  std::vector<std::unique_ptr<Scope>> kept_scopes;  // left, but a macro refers to them
  int depth = 0;
  int error_line = 0;  // line of the innermost expression or statement that failed

  void FailedAt(int line) {
    if (error_line == 0) error_line = line;
  }
};

// A scope inside `parent`, the innermost until this ends.
class ScopeGuard {
 public:
  ScopeGuard(RenderState* state, Scope* parent)
      : state_(*state),
        scope_(std::make_unique<Scope>(parent)),
        outer_(std::exchange(state_.scope, scope_.get())) {}
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;
  ~ScopeGuard() {
    state_.scope = outer_;
    if (scope_->kept()) state_.kept_scopes.push_back(std::move(scope_));
  }

 private:
  RenderState& state_;
  std::unique_ptr<Scope> scope_;
  Scope* outer_;
};

// Bounds the interpreter's recursion, which uses the stack.
class DepthGuard {
 public:
  static constexpr int kMax = 600;

  explicit DepthGuard(RenderState* state) : state_(*state) { ++state_.depth; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  ~DepthGuard() { --state_.depth; }

  Status Check() const {
    if (state_.depth <= kMax) return OkStatus();
    return ResourceExhausted("the template recurses more than {} levels deep", kMax);
  }

 private:
  RenderState& state_;
};

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_RENDER_STATE_H_
