// The structs of kiln.h as those of C++, which lie in them behind their size: a launch copies neither.
#pragma once

#include <cstddef>

#include "c/status.hpp"
#include "kiln/binding.hpp"

namespace kiln::c {

static_assert(KILN_MAX_AXES == max_axes && KILN_MAX_SELECTIONS == max_selections && KILN_MAX_RUNTIME == max_runtime &&
              KILN_MAX_TENSORS == max_tensors && KILN_MAX_RANK == max_rank);
constexpr std::size_t behind_size = sizeof(std::size_t);
static_assert(sizeof(kiln_problem) == behind_size + sizeof(Problem) && alignof(kiln_problem) >= alignof(Problem) &&
              offsetof(kiln_problem, axes) == behind_size + offsetof(Problem, axes) &&
              offsetof(kiln_problem, selections) == behind_size + offsetof(Problem, selections) &&
              offsetof(kiln_problem, op) == behind_size + offsetof(Problem, op));
static_assert(sizeof(kiln_arguments) == behind_size + sizeof(Arguments) &&
              alignof(kiln_arguments) >= alignof(Arguments) &&
              offsetof(kiln_arguments, tensors) == behind_size + offsetof(Arguments, tensors) &&
              offsetof(kiln_arguments, runtime) == behind_size + offsetof(Arguments, runtime) &&
              offsetof(kiln_arguments, lengths) == behind_size + offsetof(Arguments, lengths) &&
              offsetof(kiln_arguments, runtime_set) == behind_size + offsetof(Arguments, runtime_set) &&
              offsetof(kiln_arguments, lengths_set) == behind_size + offsetof(Arguments, lengths_set) &&
              offsetof(kiln_arguments, op) == behind_size + offsetof(Arguments, op));

// Sources of this module read and write what is behind a size as the C++ struct alone; C's are other translation units.
inline const Problem& read(const kiln_problem& problem) noexcept {
  return reinterpret_cast<const Problem&>(problem.axes);
}
inline Problem& read(kiln_problem& problem) noexcept { return reinterpret_cast<Problem&>(problem.axes); }
inline const Arguments& read(const kiln_arguments& arguments) noexcept {
  return reinterpret_cast<const Arguments&>(arguments.tensors);
}
inline Arguments& read(kiln_arguments& arguments) noexcept { return reinterpret_cast<Arguments&>(arguments.tensors); }

/// The id of a run-time value as one number: its index, and its kind above.
inline std::uint32_t to_id(RuntimeId id) noexcept { return id.index | static_cast<std::uint32_t>(id.kind) << 8; }

}  // namespace kiln::c
