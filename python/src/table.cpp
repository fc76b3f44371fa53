#include <nanobind/nanobind.h>

#include <string>

#include "engines.hpp"
#include "table.hpp"

namespace kiln_python {
namespace {

/// What a function that needs Python failed with; empty: kiln_last_error().
thread_local std::string failure;

kiln_status refuse(kiln_status status, std::string sentence) {
  failure = std::move(sentence);
  return status;
}

/// Runs what may throw, with the GIL.
template <class Function>
kiln_status with_python(const Function& function) noexcept {
  failure.clear();
  const nb::gil_scoped_acquire held;
  try {
    function();
    return KILN_OK;
  } catch (nb::python_error& error) {
    const nb::object value = nb::borrow(error.value());
    if (PyErr_GivenExceptionMatches(error.type().ptr(), PyExc_Exception) != 0)
      return refuse(KILN_BAD_INPUT, nb::str(value).c_str());
    PyErr_SetInterrupt();  // the main thread raises it again
    return refuse(KILN_INTERRUPTED, "interrupted");
  } catch (const std::exception& error) {
    return refuse(KILN_INTERNAL, error.what());
  }
}

kiln_status enter() {
  enter_call();
  if (!is_over()) [[likely]] {
    failure.clear();
    return KILN_OK;
  }
  leave_call();
  return with_python(refuse_if_over);
}

kiln_status find_op(const char* name, const char* folder, int32_t device, kiln_op** op) {
  return with_python([&] { *op = bound_op(name, folder, device).op; });
}

kiln_status launch(const kiln_op* op, const kiln_problem* problem, const kiln_arguments* arguments,
                   kiln_stream stream) {
  return with_python([&] {
    Released::run([&] { return kiln_launch(op, problem, arguments, stream, nullptr); });
    tell();
  });
}

const char* error() { return failure.empty() ? kiln_last_error() : failure.c_str(); }

constexpr kiln_python_table table{sizeof(kiln_python_table),
                                  enter,
                                  leave_call,
                                  find_op,
                                  launch,
                                  set_allocator,
                                  error,
                                  kiln_op_get_info,
                                  kiln_op_axis,
                                  kiln_op_tensor,
                                  kiln_op_value,
                                  kiln_op_binding,
                                  kiln_bind,
                                  kiln_set_integer,
                                  kiln_set_real,
                                  kiln_set_length,
                                  kiln_try_launch};

}  // namespace

void add_table(nb::module_& module) { module.attr("table") = nb::int_(reinterpret_cast<std::uintptr_t>(&table)); }

}  // namespace kiln_python
