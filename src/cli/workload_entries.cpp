#include "cli/workload_entries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace kiln::cli {

std::string toml(std::int64_t size) { return fmt::to_string(size); }
std::string toml(const manifest::SizeRange& range) { return fmt::format("\"{}..{}\"", range.low, range.high); }
std::string toml(const Sizes& sizes) {
  return sizes.size() == 1 ? toml(sizes.front()) : fmt::format("[{}]", fmt::join(sizes, ", "));
}
std::string toml(const Words& words) {
  return words.size() == 1 ? fmt::format("\"{}\"", words.front()) : fmt::format("[\"{}\"]", fmt::join(words, "\", \""));
}

std::int64_t pow2_ceil(std::int64_t size) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(size)));
}

Sizes distinct(std::initializer_list<std::int64_t> sizes) {
  Sizes result;
  for (const std::int64_t each : sizes)
    if (each > 0 && std::find(result.begin(), result.end(), each) == result.end()) result.push_back(each);
  return result;
}

Sizes lengths_of(const manifest::SizeRange& range) {
  Sizes lengths;
  for (std::int64_t length = pow2_ceil(range.low); length <= pow2_ceil(range.high); length *= 2)
    lengths.push_back(std::min(length, range.high));
  return lengths;
}

void WorkloadEntries::add(const char* comment, const char* op, const Values& axes, Values types) {
  types.insert(types.begin(), {"dtype", toml(Words{dtype_})});
  const auto pairs = [](const Values& given) {
    Words parts;
    for (const auto& [name, value] : given) parts.push_back(fmt::format("{} = {}", name, value));
    return fmt::format("{{ {} }}", fmt::join(parts, ", "));
  };
  text_ += fmt::format("\n[[workload]] # {}\nop    = \"{}\"\naxes  = {}\ntypes = {}\n", comment, op, pairs(axes),
                       pairs(types));
}

}  // namespace kiln::cli
