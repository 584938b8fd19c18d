#include "text/jinja/render_state.h"

namespace talon::jinja {

const Value* Scope::Find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
    const auto found = scope->variables_.find(name);
    if (found != scope->variables_.end()) return &found->second;
  }
  return nullptr;
}

void Scope::Keep() {
  for (Scope* scope = this; scope != nullptr; scope = scope->parent_) scope->kept_ = true;
}

}  // namespace talon::jinja
