# Writes OUTPUT, a C++ source with process::identity() and the ELF note of the same text: VERSION and a digest of the files below SOURCE
# that LIST names, a line each.
file(STRINGS "${LIST}" files)
set(digests "")
foreach(file IN LISTS files)
  file(SHA256 "${SOURCE}/${file}" digest)
  string(APPEND digests "${file} ${digest}\n")
endforeach()
string(SHA256 digest "${digests}")
string(SUBSTRING "${digest}" 0 16 digest)
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT [[#include "process/identity.hpp"

#include <cstdint>

namespace kiln::process {
namespace {

// As elf.h's Elf64_Nhdr, then name and text.
struct Note {
  std::uint32_t name_bytes, text_bytes, type;
  char name[8], text[48];
};
__attribute__((section(".note.kiln"), used, aligned(4))) const Note note{5, 48, 1, "Kiln", "@VERSION@ @digest@"};

}  // namespace

// Not of the note, which tools that edit a library may move.
std::string_view identity() noexcept { return "@VERSION@ @digest@"; }

}  // namespace kiln::process
]] @ONLY)
