#include "cuda/library.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "manifest/shortage.hpp"

namespace kiln::cuda {
namespace {

const link_map* map_of(void* handle) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map : nullptr;
}

std::string hex(const unsigned char* bytes, std::size_t count) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += digits[bytes[i] >> 4];
    text += digits[bytes[i] & 15];
  }
  return text;
}

/// Returns the build id among the ELF notes in [at, end), or an empty string. Names and descriptions are padded to 4
/// bytes.
std::string build_id_in(const unsigned char* at, const unsigned char* end) {
  const auto padded = [](std::size_t size) { return (size + 3) & ~std::size_t{3}; };
  while (at + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const unsigned char* name = at + sizeof note;
    const unsigned char* description = name + padded(note.n_namesz);
    if (description + note.n_descsz > end) return {};
    const std::string_view owner(reinterpret_cast<const char*>(name), note.n_namesz);
    if (note.n_type == NT_GNU_BUILD_ID && owner == std::string_view("GNU\0", 4)) return hex(description, note.n_descsz);
    at = description + padded(note.n_descsz);
  }
  return {};
}

struct BuildIdSearch {
  ElfW(Addr) base;
  std::string found;
};

int look_for_build_id(dl_phdr_info* library, std::size_t, void* data) {
  auto& search = *static_cast<BuildIdSearch*>(data);
  if (library->dlpi_addr != search.base) return 0;
  for (int i = 0; i < library->dlpi_phnum && search.found.empty(); ++i) {
    const ElfW(Phdr)& segment = library->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const unsigned char*>(library->dlpi_addr + segment.p_vaddr);
    search.found = build_id_in(notes, notes + segment.p_memsz);
  }
  return 1;
}

}  // namespace

std::optional<Library> Library::open(std::span<const std::string> candidates, std::string& tried) {
  for (const std::string& candidate : candidates) {
    if (void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)) return Library(handle);
    const char* reason = dlerror();
    tried += "\n  " + (reason != nullptr ? std::string(reason) : candidate);
  }
  return std::nullopt;
}

Library Library::open(const LibrarySource& source, const std::string& path) {
  if (path == "none") throw Error(source.kind, source.hidden);
  std::string tried = source.unopened;
  if (auto library = open(path.empty() ? source.candidates() : std::vector<std::string>{path}, tried)) return *library;
  throw Error(source.kind, tried);
}

void Library::refuse(const LibrarySource& source, const std::string& what) const {
  throw Error(source.kind, std::string(source.name) + " at " + path() + " " + what);
}

void* Library::address(const char* symbol) const { return dlsym(handle_, symbol); }

std::string Library::path() const {
  const link_map* map = map_of(handle_);
  const std::string name = map != nullptr && map->l_name != nullptr ? map->l_name : "";
  std::error_code removed;  // the current directory
  const auto full = name.empty() ? std::filesystem::path() : std::filesystem::absolute(name, removed);
  return removed || !std::filesystem::exists(full, removed) ? name : full.string();
}

std::string Library::build_id() const {
  if (const link_map* map = map_of(handle_)) {
    BuildIdSearch search{map->l_addr, {}};
    dl_iterate_phdr(look_for_build_id, &search);
    if (!search.found.empty()) return search.found;
  }
  std::error_code failure;
  const auto size = std::filesystem::file_size(path(), failure);
  return "size-" + std::to_string(failure ? 0 : size);
}

std::string version_text(std::size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string passing_shortage(std::string_view text) {
  int error = manifest::descriptor_shortage();
  for (const int each : {EMFILE, ENFILE, ENOMEM})
    if (text.find(std::strerror(each)) != std::string_view::npos) error = each;
  if (text.find("CUDA_ERROR_OUT_OF_MEMORY") != std::string_view::npos) error = ENOMEM;
  return error == 0 ? std::string() : "It is tried again at the next use. " + manifest::refusal_text(error);
}

}  // namespace kiln::cuda
