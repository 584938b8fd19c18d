#include "serve/http/guard/byte_budget.h"

namespace talon {

ByteBudget::Share& ByteBudget::Share::operator=(Share&& other) noexcept {
  if (this == &other) return *this;
  Release();
  budget_ = std::exchange(other.budget_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  beyond_ = std::exchange(other.beyond_, false);
  return *this;
}

void ByteBudget::Share::Release() {
  if (budget_ == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(budget_->mutex_);
    budget_->taken_ -= bytes_;
    if (beyond_) budget_->beyond_ = false;
  }
  budget_->released_.notify_all();
  budget_ = nullptr;
  bytes_ = 0;
  beyond_ = false;
}

bool ByteBudget::Share::GrowTo(size_t bytes, std::chrono::milliseconds wait) {
  const size_t more = bytes - bytes_;
  std::unique_lock<std::mutex> lock(budget_->mutex_);
  const auto ready = [&] { return beyond_ || budget_->Fits(more) || !budget_->beyond_; };
  if (!budget_->released_.wait_for(lock, wait, ready)) return false;
  if (!beyond_ && !budget_->Fits(more)) beyond_ = budget_->beyond_ = true;
  budget_->taken_ += more;
  bytes_ = bytes;
  return true;
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
