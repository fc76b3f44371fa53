// What every file here uses of Python: errors, and calls during which other Python threads run.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <string>
#include <string_view>

#include "kiln/kiln.h"

namespace kiln_python {

namespace nb = nanobind;

/// What the package's Python half brings, once.
struct Hooks {
  nb::object error;  // kiln.Error(sentence, kind)
  nb::object begin;  // called before the first engine; gives the files of installed packages
  nb::object log;    // (level, sentence)
};
Hooks& hooks() noexcept;

/// A text of Kiln's, in which the path of a file need not be UTF-8: other bytes become U+FFFD.
nb::str readable(std::string_view text);

/// Throws kiln.Error.
[[noreturn]] void fail(std::string_view kind, std::string_view sentence);
[[noreturn]] void bad_input(std::string_view sentence);
/// Throws kiln.Error for the calling thread's last failure, unless the status is KILN_OK.
void check(kiln_status status);

/// The text, readable(), which is then free; empty for null.
std::string taken(char* text);
/// UTF-8 of a str.
std::string text_of(nb::handle object);
std::string name_of_type(nb::handle object);

/// A call into Kiln that may block: other Python threads run meanwhile. Where a tune asks whether to stop, on this
/// thread, signals are looked at, so that Ctrl-C ends it.
class Released {
 public:
  Released();
  ~Released();
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

  /// Runs `function`, which gives a kiln_status, and throws for its failure or for what a signal's handler raised.
  template <class Function>
  static void run(const Function& function);

  /// The innermost one of this thread; may be null.
  static Released* current() noexcept;
  bool has_signal();

 private:
  Released* outer_;
  PyThreadState* state_;
  bool signalled_ = false;
  std::chrono::steady_clock::time_point next_look_{};  // none before the first question
};

template <class Function>
void Released::run(const Function& function) {
  kiln_status status = KILN_OK;
  bool signalled = false;
  {
    Released released;
    status = function();
    signalled = released.signalled_;
  }
  if (signalled) throw nb::python_error();
  check(status);
}

}  // namespace kiln_python
