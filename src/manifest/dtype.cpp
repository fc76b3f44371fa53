#include <array>

#include "manifest/op.hpp"

namespace kiln::manifest {
namespace {

struct Facts {
  std::string_view name, cpp;
  std::int64_t size;
};
// In the order of DType.
constexpr std::array facts = {
    Facts{"bf16", "kiln::bf16", 2}, Facts{"f16", "kiln::f16", 2},    Facts{"f32", "float", 4},
    Facts{"f64", "double", 8},      Facts{"e4m3", "kiln::e4m3", 1},  Facts{"e5m2", "kiln::e5m2", 1},
    Facts{"i8", "signed char", 1},  Facts{"u8", "unsigned char", 1}, Facts{"i32", "int", 4},
    Facts{"i64", "long long", 8},
};
static_assert(facts.size() == static_cast<std::size_t>(DType::i64) + 1);

const Facts& of(DType type) noexcept { return facts[static_cast<std::size_t>(type)]; }

}  // namespace

std::string_view to_string(DType type) noexcept { return of(type).name; }
std::int64_t size_of(DType type) noexcept { return of(type).size; }
std::string_view cpp_name(DType type) noexcept { return of(type).cpp; }

std::optional<DType> parse_dtype(std::string_view name) noexcept {
  for (std::size_t i = 0; i < facts.size(); ++i) {
    if (facts[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace kiln::manifest
