// Sections of a cubin, an ELF file of 64 bits. Private to the module. Nothing past the image's end is read.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

namespace kiln::jit {

using Bytes = std::span<const std::byte>;

/// Reads a T, or returns zeros past the end.
template <typename T>
T read_at(Bytes bytes, std::size_t at) noexcept {
  T value{};
  if (at <= bytes.size() && sizeof value <= bytes.size() - at) std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

inline Bytes part_of(Bytes bytes, std::size_t at, std::size_t size) noexcept {
  return at <= bytes.size() && size <= bytes.size() - at ? bytes.subspan(at, size) : Bytes();
}

/// Returns the header of the section of this name, or nothing when the file has none.
std::optional<Elf64_Shdr> section_header(Bytes image, const std::string& name);
/// Returns an empty span when the file has no section of this name.
Bytes section_of(Bytes image, const std::string& name);

/// Calls `visit(attribute, number, payload)` for each attribute of a .nv.info section, as cuobjdump -elf lists them.
/// `number` is the value of an attribute without a payload.
template <typename Visit>
void visit_info(Bytes info, const Visit& visit) {
  constexpr std::uint8_t format_sized = 4;  // a 16-bit size and that many bytes; other formats hold 16 bits
  while (info.size() >= 4) {
    const bool is_sized = static_cast<std::uint8_t>(info[0]) == format_sized;
    const auto number = read_at<std::uint16_t>(info, 2);
    visit(static_cast<std::uint8_t>(info[1]), number, is_sized ? part_of(info, 4, number) : Bytes());
    const std::size_t bytes = 4 + (is_sized ? std::size_t{number} : 0);
    info = info.subspan(bytes < info.size() ? bytes : info.size());
  }
}

}  // namespace kiln::jit
