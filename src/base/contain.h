// Contains a broken invariant: the work that met it fails, not the process.
//
// TALON_CHECK throws BrokenInvariant. It is the only exception that crosses modules, and it is
// caught where requests are answered for: around a step of an engine, a batch of a draft worker and
// the end of a session. Elsewhere it ends the process with its message.
#ifndef TALON_BASE_CONTAIN_H_
#define TALON_BASE_CONTAIN_H_

#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/status.h"

namespace talon {

struct BrokenInvariant : std::logic_error {
  using std::logic_error::logic_error;
};

// The device failed and does not work again in this process.
struct DeviceFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// As std::bad_alloc, with what was wanted.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(const std::string& message) : message_(message) {}
  const char* what() const noexcept override { return message_.what(); }

 private:
  std::runtime_error message_;  // its copies do not throw
};

// Memory that is had within a step, or OutOfMemory.
template <typename T>
T MemoryOrThrow(Result<T> memory) {
  if (!memory.ok()) throw OutOfMemory(memory.status().message());
  return std::move(memory).value();
}

// Calls `function`. What it throws becomes a status: Internal for a broken invariant,
// ResourceExhausted for want of memory, Unavailable for a device fault.
template <typename Function>
Status Contain(const Function& function) {
  try {
    function();
  } catch (const BrokenInvariant& broken) {
    return Status(StatusCode::kInternal, broken.what());
  } catch (const DeviceFault& fault) {
    return Status(StatusCode::kUnavailable, fault.what());
  } catch (const OutOfMemory& lack) {
    return Status(StatusCode::kResourceExhausted, lack.what());
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, "out of memory");
  }
  return OkStatus();
}

}  // namespace talon

#endif  // TALON_BASE_CONTAIN_H_
