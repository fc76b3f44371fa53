#include "cli/natural_order.hpp"

#include <cstddef>

namespace kiln::cli {
namespace {

std::size_t digits_at(std::string_view text, std::size_t at) {
  const std::size_t end = text.find_first_not_of("0123456789", at);
  return (end == std::string_view::npos ? text.size() : end) - at;
}

}  // namespace

bool reads_before(std::string_view a, std::string_view b) {
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::size_t digits = digits_at(a, i), others = digits_at(b, j);
    if (digits > 0 && digits != others && others > 0) return digits < others;
    if (a[i] != b[j]) return a[i] < b[j];
    ++i;
    ++j;
  }
  return a.size() < b.size();
}

}  // namespace kiln::cli
