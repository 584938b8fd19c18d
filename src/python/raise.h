// Failures as Python exceptions. The caller holds the GIL.
#ifndef TALON_PYTHON_RAISE_H_
#define TALON_PYTHON_RAISE_H_

#include <pybind11/pybind11.h>

#include <string>
#include <utility>

#include "base/status.h"

namespace talon {

// ValueError for InvalidArgument and OutOfRange, FileNotFoundError for NotFound, MemoryError for
// ResourceExhausted, else RuntimeError, with the status's message.
[[noreturn]] void Raise(const Status& status);

inline void RaiseIfError(const Status& status) {
  if (!status.ok()) Raise(status);
}

template <typename T>
T ValueOrRaise(Result<T> result) {
  if (!result.ok()) Raise(result.status());
  return std::move(result).value();
}

// Text for Python: bytes that are not UTF-8 become U+FFFD.
pybind11::str ToPythonText(const std::string& text);

// The UTF-8 bytes of a Python str. ValueError that names it `what` if it has lone surrogates.
std::string FromPythonText(const pybind11::handle& text, const std::string& what);

}  // namespace talon

#endif  // TALON_PYTHON_RAISE_H_
