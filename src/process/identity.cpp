#include "process/identity.hpp"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <vector>

namespace kiln::process {
namespace {

constexpr std::string_view note_name{"Kiln\0", 5};  // with its zero, as a note holds it
constexpr std::uint64_t most_note_bytes = 1 << 16;

template <class Value>
bool read_at(std::ifstream& file, std::uint64_t offset, Value& value) {
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&value), sizeof value));
}

constexpr std::size_t padded(std::size_t bytes, std::size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Returns the text of Kiln's note among these; empty where it is not there.
std::string find_note(std::span<const char> notes, std::size_t alignment) {
  Elf64_Nhdr head;
  while (notes.size() >= sizeof head) {
    std::memcpy(&head, notes.data(), sizeof head);
    const std::size_t text = padded(sizeof head + head.n_namesz, alignment);
    const std::size_t next = padded(text + head.n_descsz, alignment);
    if (text + head.n_descsz > notes.size()) break;
    if (std::string_view(notes.data() + sizeof head, head.n_namesz) == note_name) {
      const std::string_view padded_text(notes.data() + text, head.n_descsz);
      return std::string(padded_text.substr(0, padded_text.find('\0')));
    }
    notes = notes.subspan(std::min(next, notes.size()));
  }
  return {};
}

}  // namespace

std::string identity_of(const std::filesystem::path& program) {
  std::ifstream file(program, std::ios::binary);
  Elf64_Ehdr head;
  if (!read_at(file, 0, head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
      head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_phentsize != sizeof(Elf64_Phdr))
    return {};
  for (std::uint64_t index = 0; index < head.e_phnum; ++index) {
    Elf64_Phdr segment;
    if (!read_at(file, head.e_phoff + index * sizeof segment, segment)) return {};
    if (segment.p_type != PT_NOTE || segment.p_filesz > most_note_bytes) continue;
    std::vector<char> notes(segment.p_filesz);
    file.seekg(static_cast<std::streamoff>(segment.p_offset));
    if (!file.read(notes.data(), static_cast<std::streamsize>(notes.size()))) return {};
    if (std::string found = find_note(notes, segment.p_align == 8 ? 8 : 4); !found.empty()) return found;
  }
  return {};
}

}  // namespace kiln::process
