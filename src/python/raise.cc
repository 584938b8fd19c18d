#include "python/raise.h"

namespace talon {

namespace py = pybind11;

namespace {

PyObject* ExceptionOf(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
      return PyExc_ValueError;
    case StatusCode::kNotFound:
      return PyExc_FileNotFoundError;
    case StatusCode::kResourceExhausted:
      return PyExc_MemoryError;
    default:
      return PyExc_RuntimeError;
  }
}

}  // namespace

void Raise(const Status& status) {
  PyErr_SetObject(ExceptionOf(status.code()), ToPythonText(status.message()).ptr());
  throw py::error_already_set();
}

py::str ToPythonText(const std::string& text) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

std::string FromPythonText(const py::handle& text, const std::string& what) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes != nullptr) return {bytes, static_cast<size_t>(size)};
  const py::error_already_set
      error;  // Python's own error, which names the character and its position
  throw py::value_error(what + ": " + std::string(py::str(error.value())));
}

}  // namespace talon
