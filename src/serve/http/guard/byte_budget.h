// A limit on the bytes that requests hold at the same time.
#ifndef TALON_SERVE_HTTP_GUARD_BYTE_BUDGET_H_
#define TALON_SERVE_HTTP_GUARD_BYTE_BUDGET_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>

namespace talon {

// Thread-safe, but each share is one thread's. Outlives the shares that were taken of it.
//
// One share at a time may grow beyond the limit: shares that all wait for more would otherwise wait
// for each other.
class ByteBudget {
 public:
  // Bytes of the budget, given back at its end. An empty share has none.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept { *this = std::move(other); }
    Share& operator=(Share&& other) noexcept;
    ~Share() { Release(); }
    void Release();
    explicit operator bool() const { return budget_ != nullptr; }
    size_t bytes() const { return bytes_; }

    // Waits until the share has `bytes` in all. False: it did not in time, and has what it had.
    // REQUIRES: not an empty share, and not fewer bytes than it has.
    bool GrowTo(size_t bytes, std::chrono::milliseconds wait);

   private:
    friend class ByteBudget;
    ByteBudget* budget_ = nullptr;
    size_t bytes_ = 0;
    bool beyond_ = false;  // it may exceed the limit
  };

  explicit ByteBudget(size_t limit) : limit_(limit) {}

  // Waits until `bytes` fit beside the others'; more than the limit fit alone. An empty share: they
  // did not in time.
  Share Take(size_t bytes, std::chrono::milliseconds wait);

 private:
  bool Fits(size_t bytes) const {
    return taken_ == 0 || (taken_ <= limit_ && bytes <= limit_ - taken_);
  }

  const size_t limit_;
  std::mutex mutex_;
  std::condition_variable released_;
  size_t taken_ = 0;
  bool beyond_ = false;  // a share may exceed the limit
};

}  // namespace talon

#endif  // TALON_SERVE_HTTP_GUARD_BYTE_BUDGET_H_
