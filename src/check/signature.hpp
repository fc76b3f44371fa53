// What types a kernel takes, by the name of its machine code: names of C++ functions hold their parameters' types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::check {

enum class TypeKind : std::uint8_t {
  other,  // a structure, or a type that depends on template parameters: nothing is known of it
  integer,
  real,
  pointer,
  view  // kiln::view
};

struct ParameterType {
  TypeKind kind = TypeKind::other;
  std::string text;       // as C++ writes it
  std::string element{};  // what a pointer or a view leads to, without const
  bool points_to_const = false;
};

/// Returns the types of a kernel's parameters, or nothing for a name that does not hold them, as of extern "C".
std::optional<std::vector<ParameterType>> parameter_types(const std::string& lowered_name);

/// Takes one type apart, as a demangler writes it: "kiln::bf16 const*".
ParameterType parse_type(std::string_view text);

}  // namespace kiln::check
