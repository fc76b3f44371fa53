#include "jit/cubin_sections.hpp"

namespace kiln::jit {

std::optional<Elf64_Shdr> section_header(Bytes image, const std::string& name) {
  const auto header = read_at<Elf64_Ehdr>(image, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return std::nullopt;
  const auto section = [&](std::size_t index) {
    return read_at<Elf64_Shdr>(image, header.e_shoff + index * sizeof(Elf64_Shdr));
  };
  const Elf64_Shdr strings = section(header.e_shstrndx);
  const Bytes names = part_of(image, strings.sh_offset, strings.sh_size);
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr each = section(i);
    const Bytes its_name = part_of(names, each.sh_name, name.size() + 1);
    if (!its_name.empty() && std::memcmp(its_name.data(), name.c_str(), its_name.size()) == 0) return each;
  }
  return std::nullopt;
}

Bytes section_of(Bytes image, const std::string& name) {
  const auto header = section_header(image, name);
  return header ? part_of(image, header->sh_offset, header->sh_size) : Bytes();
}

}  // namespace kiln::jit
