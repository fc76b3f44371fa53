// Reads an op's problem and arguments from tensors, and checks them by what [tensors] says. Op::bind's work.
//
//   types        an element type gives the type of the op that it stands for; others take their defaults
//   form         [tensors] with these types and choices folded in, made once for each combination of them
//   sizes        a dimension that is one axis gives its size; `batch + 1` and `2 * n` are solved; others are compared
//   strides      a stride that is a run-time value gives it, unless it is the default; others are compared
//   placement    addresses, devices, alignment to elements, and memory that outputs share
//
// All of it stands twice. read (binder.cpp) takes any tensors, and names what is wrong with them. try_bind
// (try_bind.cpp) takes the tensors of most calls, in a fraction of the time, with the same result, and names nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "kiln/binding.hpp"
#include "manifest/op.hpp"

namespace kiln::manifest {

struct Combination;

/// What is bound: the parts of a Binding.
struct BindingParts {
  Problem& problem;
  Arguments& arguments;
  std::uint32_t axes_given, selections_given, values_given;
};

class Binder {
 public:
  /// `op` and `facts` must outlive this object.
  Binder(const Op& op, const DeviceFacts& facts) noexcept : op_(op), facts_(facts) {}
  ~Binder();
  Binder(const Binder&) = delete;
  Binder& operator=(const Binder&) = delete;

  /// Fills `binding` for tensors that a GPU of this ordinal reads and writes. No lock and no allocation where the types
  /// and choices were bound before. Throws Error(bad_input) that names the tensor; no launch takes `binding` then.
  void bind(Binding& binding, std::span<const Operand> operands, int device) const;
  /// Does the same for most tensors that are right. Else leaves `binding` as it is and returns false: read() knows
  /// more.
  bool try_bind(const BindingParts& binding, std::span<const Operand> operands, int device) const noexcept;
  /// Does what bind() does, in more time.
  void read(Binding& binding, std::span<const Operand> operands, int device) const;

 private:
  bool take_usual(const BindingParts& binding, std::span<const Operand> operands, int device) const noexcept;
  void read_selections(Binding& binding, std::span<const Operand> operands) const;
  const Combination& combination_of(const Problem& problem) const;

  const Op& op_;
  const DeviceFacts& facts_;
  mutable std::mutex making_;
  mutable std::atomic<Combination*> combinations_{nullptr};  // a list, to which they are added alone
};

}  // namespace kiln::manifest
