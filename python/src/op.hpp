// kiln.Op: what norm(x=x, weight=w, y=y) calls.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "engines.hpp"

namespace kiln_python {

class TensorReader;

class Op {
 public:
  Op(std::string name, std::string folder) : name_(std::move(name)), folder_(std::move(folder)) {}

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  /// For a device, or where it is -1 for any: one that is there, else that of the current context. May block.
  Bound& on(int device);

  /// Launches; the arguments are those of a Python call.
  void call(PyObject* positional, PyObject* keywords);
  /// The problem of sizes, types and choices.
  kiln_problem problem(Bound& bound, const nb::dict& settings) const;
  /// The problems of `settings` and of sizes for some axes, each with each.
  std::vector<kiln_problem> problems(Bound& bound, const nb::dict& settings, const nb::dict& sizes) const;

 private:
  struct Call;
  [[noreturn]] void refuse(std::string_view what) const;
  [[noreturn]] void refuse_name(const Bound& bound, nb::handle key) const;
  std::uint32_t find(const Bound& bound, PyObject* key) const;
  Scalar scalar(const Name& name, std::uint32_t index, nb::handle value) const;
  void take(Call& call, const Bound& bound, PyObject* key, nb::handle value);
  void take_length(Call& call, const Name& name, nb::handle value);
  Bound& first_bound(PyObject* keywords);
  const kiln_binding& ready(Bound& bound, const Call& call) const;
  static Bound::Ready& kept(Bound& bound, Bound::Ready made);

  std::string name_, folder_;
  std::array<Bound*, 16> by_device_{};
};

}  // namespace kiln_python
