#include "module/cubin.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <string_view>

namespace fake_cuda {
namespace {

constexpr unsigned char os_abi_since_cuda_13 = 0x41;
constexpr unsigned char symbol_is_entry = 0x10;  // st_other of a __global__ function
constexpr std::int64_t reserved_shared = 1024;   // of each block, counted in .nv.shared since sm_90

// Attributes of .nv.info, as nvdisasm and cuobjdump -elf name them.
enum class Attribute : std::uint8_t { max_threads = 0x05, frame_size = 0x11, parameter = 0x17, register_count = 0x2f };
constexpr std::uint8_t format_sized = 4;  // a 16-bit size and that many bytes; others hold 16 bits in all

template <typename T>
T read_at(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

class Elf {
 public:
  explicit Elf(const std::byte* image) : image_(image), header_(read_at<Elf64_Ehdr>(image)) {}

  [[nodiscard]] const Elf64_Ehdr& header() const { return header_; }
  [[nodiscard]] Elf64_Shdr section(std::size_t index) const {
    return read_at<Elf64_Shdr>(image_ + header_.e_shoff + index * sizeof(Elf64_Shdr));
  }
  [[nodiscard]] std::string_view section_name(const Elf64_Shdr& section) const {
    return reinterpret_cast<const char*>(image_ + this->section(header_.e_shstrndx).sh_offset + section.sh_name);
  }
  [[nodiscard]] std::span<const std::byte> content(const Elf64_Shdr& section) const {
    return {image_ + section.sh_offset, section.sh_type == SHT_NOBITS ? 0 : section.sh_size};
  }
  [[nodiscard]] const char* string(std::size_t table, std::size_t offset) const {
    return reinterpret_cast<const char*>(image_ + section(table).sh_offset + offset);
  }
  template <typename Visit>
  void for_each_section(Visit visit) const {
    for (std::size_t i = 0; i < header_.e_shnum; ++i) visit(section(i));
  }

 private:
  const std::byte* image_;
  Elf64_Ehdr header_;
};

/// visit(attribute, payload) for each sized attribute.
template <typename Visit>
void for_each_attribute(std::span<const std::byte> info, Visit visit) {
  while (info.size() >= 4) {
    const auto format = static_cast<std::uint8_t>(info[0]);
    const auto attribute = static_cast<Attribute>(info[1]);
    const std::size_t size = format == format_sized ? read_at<std::uint16_t>(&info[2]) : 0;
    if (info.size() < 4 + size) return;
    if (format == format_sized) visit(attribute, info.subspan(4, size));
    info = info.subspan(4 + size);
  }
}

/// The section NAME.KERNEL, or null.
std::optional<Elf64_Shdr> section_of(const Elf& elf, std::string_view prefix, std::string_view kernel) {
  std::optional<Elf64_Shdr> found;
  elf.for_each_section([&](const Elf64_Shdr& section) {
    const std::string_view name = elf.section_name(section);
    if (name.size() == prefix.size() + kernel.size() && name.starts_with(prefix) && name.ends_with(kernel))
      found = section;
  });
  return found;
}

void read_own_info(std::span<const std::byte> info, CubinKernel& kernel) {
  std::map<std::uint16_t, std::int64_t> parameters;  // by ordinal
  for_each_attribute(info, [&](Attribute attribute, std::span<const std::byte> payload) {
    if (attribute == Attribute::parameter && payload.size() >= 12) {
      parameters[read_at<std::uint16_t>(&payload[4])] = read_at<std::uint32_t>(&payload[8]) >> 18;
    } else if (attribute == Attribute::max_threads && payload.size() >= 12) {
      kernel.max_threads = 1;
      for (std::size_t i = 0; i < 12; i += 4) kernel.max_threads *= read_at<std::uint32_t>(&payload[i]);
    }
  });
  for (const auto& [ordinal, bytes] : parameters) kernel.parameters.push_back(bytes);
}

/// The attributes that .nv.info holds for all kernels: a symbol's index and a number each.
void read_shared_info(std::span<const std::byte> info, std::uint32_t symbol, CubinKernel& kernel) {
  for_each_attribute(info, [&](Attribute attribute, std::span<const std::byte> payload) {
    if (payload.size() < 8 || read_at<std::uint32_t>(&payload[0]) != symbol) return;
    if (attribute == Attribute::register_count) kernel.registers = read_at<std::uint32_t>(&payload[4]);
    if (attribute == Attribute::frame_size) kernel.local = read_at<std::uint32_t>(&payload[4]);
  });
}

CubinKernel read_kernel(const Elf& elf, std::string name, std::uint32_t symbol, std::int64_t sm) {
  CubinKernel kernel;
  kernel.name = std::move(name);
  if (const auto info = section_of(elf, ".nv.info", "")) read_shared_info(elf.content(*info), symbol, kernel);
  if (const auto info = section_of(elf, ".nv.info.", kernel.name)) read_own_info(elf.content(*info), kernel);
  if (const auto shared = section_of(elf, ".nv.shared.", kernel.name)) {
    kernel.static_shared = static_cast<std::int64_t>(shared->sh_size) - (sm >= 90 ? reserved_shared : 0);
    kernel.static_shared = std::max<std::int64_t>(kernel.static_shared, 0);
  }
  return kernel;
}

}  // namespace

std::optional<Cubin> read_cubin(const void* image) {
  const auto* bytes = static_cast<const std::byte*>(image);
  if (std::memcmp(bytes, ELFMAG, SELFMAG) != 0) return std::nullopt;
  const Elf elf(bytes);
  if (elf.header().e_ident[EI_CLASS] != ELFCLASS64 || elf.header().e_machine != EM_CUDA) return std::nullopt;
  Cubin cubin;
  const std::uint32_t flags = elf.header().e_flags;
  cubin.sm = elf.header().e_ident[EI_OSABI] == os_abi_since_cuda_13 ? flags >> 8 & 0xff : flags & 0xff;
  elf.for_each_section([&](const Elf64_Shdr& table) {
    if (table.sh_type != SHT_SYMTAB) return;
    const std::span<const std::byte> symbols = elf.content(table);
    for (std::uint32_t i = 0; (i + 1) * sizeof(Elf64_Sym) <= symbols.size(); ++i) {
      const auto symbol = read_at<Elf64_Sym>(&symbols[i * sizeof(Elf64_Sym)]);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || (symbol.st_other & symbol_is_entry) == 0) continue;
      cubin.kernels.push_back(read_kernel(elf, elf.string(table.sh_link, symbol.st_name), i, cubin.sm));
    }
  });
  return cubin;
}

}  // namespace fake_cuda
