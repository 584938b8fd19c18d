#include "serve/http/guard/byte_budget.h"

namespace talon {

ByteBudget::Share& ByteBudget::Share::operator=(Share&& other) noexcept {
  if (this == &other) return *this;
  Release();
  budget_ = std::exchange(other.budget_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void ByteBudget::Share::Release() {
  if (budget_ == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(budget_->mutex_);
    budget_->taken_ -= bytes_;
  }
  budget_->released_.notify_all();
  budget_ = nullptr;
}

ByteBudget::Share ByteBudget::Take(size_t bytes, std::chrono::milliseconds wait) {
  Share share;
  std::unique_lock<std::mutex> lock(mutex_);
  if (!released_.wait_for(lock, wait, [&] { return Fits(bytes); })) return share;
  taken_ += bytes;
  share.budget_ = this;
  share.bytes_ = bytes;
  return share;
}

}  // namespace talon
