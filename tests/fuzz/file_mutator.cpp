// Mutations that a database survives for longer than libFuzzer's own: pages are copied and swapped whole, and most
// inputs get a header that holds, so that what lies behind the first checks is reached.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string_view>

#include "file_templates.hpp"
#include "store/format.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace kiln::fuzz {
namespace {

using Random = std::minstd_rand;

std::size_t below(Random& random, std::size_t limit) { return limit == 0 ? 0 : random() % limit; }

void put_big_endian(std::span<std::uint8_t> data, std::size_t at, std::size_t bytes, std::uint32_t value) {
  for (std::size_t i = 0; i < bytes && at + i < data.size(); ++i)
    data[at + i] = static_cast<std::uint8_t>(value >> (8 * (bytes - 1 - i)));
}

std::size_t copy_template(Random& random, std::span<std::uint8_t> into) {
  const auto& all = file_templates();
  const std::string_view chosen = all[below(random, all.size())];
  const std::size_t size = std::min(chosen.size(), into.size());
  std::memcpy(into.data(), chosen.data(), size);
  return size;
}

/// One page becomes another of the same file, or one of a template: trees whose parts do not belong together.
void transplant_page(Random& random, std::span<std::uint8_t> data) {
  const auto& all = file_templates();
  const std::string_view other = all[below(random, all.size())];
  const std::size_t pages = data.size() / template_page_size, other_pages = other.size() / template_page_size;
  if (pages < 2) return;
  std::uint8_t* target = data.data() + below(random, pages) * template_page_size;
  const bool inside = random() % 2 == 0;
  const void* source = inside ? static_cast<const void*>(data.data() + below(random, pages) * template_page_size)
                              : other.data() + below(random, other_pages) * template_page_size;
  std::memmove(target, source, template_page_size);
}

/// Page numbers, cell offsets and lengths: numbers where the format has numbers.
void overwrite_number(Random& random, std::span<std::uint8_t> data) {
  constexpr std::array<std::uint32_t, 8> interesting = {0, 1, 2, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff};
  const std::size_t page = below(random, std::max<std::size_t>(1, data.size() / template_page_size));
  const std::size_t within = random() % 2 == 0 ? below(random, 16) : below(random, template_page_size);
  const std::uint32_t value =
      random() % 2 == 0 ? interesting[below(random, interesting.size())] : static_cast<std::uint32_t>(random() % 64);
  put_big_endian(data, page * template_page_size + within, std::array{1U, 2U, 4U}[below(random, 3)], value);
}

std::size_t cut(Random& random, std::size_t size) {
  const std::size_t shorter = below(random, size + 1);
  return random() % 2 == 0 ? shorter / template_page_size * template_page_size : shorter;
}

/// See store/opening.cpp for the fields.
std::size_t repair_header(std::span<std::uint8_t> data) {
  if (data.size() < template_page_size) return data.size();
  constexpr std::string_view magic{"SQLite format 3\0", 16};
  const std::size_t pages = data.size() / template_page_size;
  std::memcpy(data.data(), magic.data(), magic.size());
  put_big_endian(data, 16, 2, template_page_size);
  put_big_endian(data, 18, 2, 0x0101);
  put_big_endian(data, 20, 1, 0);
  put_big_endian(data, 28, 4, static_cast<std::uint32_t>(pages));
  put_big_endian(data, 56, 4, 1);
  put_big_endian(data, 60, 4, store::schema_version);
  put_big_endian(data, 68, 4, store::application_id);
  std::memcpy(data.data() + 92, data.data() + 24, 4);  // the page count is valid for this change counter
  return pages * template_page_size;
}

}  // namespace
}  // namespace kiln::fuzz

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  using namespace kiln::fuzz;
  Random random(seed);
  const std::span whole(data, max_size);
  if (size < template_page_size || random() % 32 == 0) size = copy_template(random, whole);
  for (std::size_t changes = 1 + below(random, 4); changes > 0; --changes) {
    switch (random() % 8) {
      case 0: size = cut(random, size); break;
      case 1:
      case 2: transplant_page(random, whole.first(size)); break;
      case 3:
      case 4:
      case 5: overwrite_number(random, whole.first(size)); break;
      default: size = LLVMFuzzerMutate(data, size, max_size);
    }
  }
  return random() % 8 == 0 ? size : repair_header(whole.first(size));
}
