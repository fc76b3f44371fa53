#include "python.hpp"

#include <unistd.h>

#include "engines.hpp"

namespace kiln_python {
namespace {

thread_local Released* innermost = nullptr;
constexpr std::chrono::milliseconds between_looks{50};

/// After its end an interpreter of before 3.14 ends each daemon thread that asks for the GIL by unwinding its stack, past destructors that
/// need the GIL. Such a thread waits for the end of the process instead, as newer interpreters have it do.
void take_gil(PyThreadState* state) noexcept {
  try {
    PyEval_RestoreThread(state);
  } catch (...) {
    for (;;) pause();
  }
}

}  // namespace

Hooks& hooks() noexcept {
  static auto* const kept = new Hooks;  // never destroyed: the interpreter ends first
  return *kept;
}

nb::str readable(std::string_view text) {
  PyObject* const made = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (made == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(made);
}

void fail(std::string_view kind, std::string_view sentence) {
  const nb::object error = hooks().error(readable(sentence), nb::str(kind.data(), kind.size()));
  PyErr_SetObject(hooks().error.ptr(), error.ptr());
  throw nb::python_error();
}

void bad_input(std::string_view sentence) { fail(kiln_status_name(KILN_BAD_INPUT), sentence); }

void check(kiln_status status) {
  if (status != KILN_OK) fail(kiln_status_name(status), kiln_last_error());
}

std::string taken(char* text) {
  const std::string copy(text == nullptr ? "" : text);
  kiln_free_text(text);
  return text_of(readable(copy));
}

std::string text_of(nb::handle object) {
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &length);
  if (text == nullptr) throw nb::python_error();
  return {text, static_cast<std::size_t>(length)};
}

std::string name_of_type(nb::handle object) { return text_of(object.type().attr("__name__")); }

Released::Released() : outer_(innermost) {
  enter_call();
  innermost = this;
  state_ = PyEval_SaveThread();
}

Released::~Released() {
  leave_call();
  take_gil(state_);
  innermost = outer_;
}

Released* Released::current() noexcept { return innermost; }

bool Released::has_signal() {
  const auto now = std::chrono::steady_clock::now();
  const bool is_first = next_look_ == std::chrono::steady_clock::time_point();
  if (signalled_ || now < next_look_) return signalled_;
  next_look_ = now + between_looks;
  if (is_first) return false;
  take_gil(state_);
  signalled_ = PyErr_CheckSignals() != 0;
  state_ = PyEval_SaveThread();
  return signalled_;
}

}  // namespace kiln_python
