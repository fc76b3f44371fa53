// Op::bind for a caller whose binding is no kiln::Binding, such as C.
#pragma once

#include <span>

#include "kiln/engine.hpp"
#include "manifest/binder.hpp"

namespace kiln::engine {

struct Bindings {
  /// As manifest::Binder::try_bind. Where it returns false, Op::bind knows more.
  static bool try_bind(const Op& op, const manifest::BindingParts& binding, std::span<const Operand> operands) noexcept;
};

}  // namespace kiln::engine
