// A cubin is an ELF file. Each kernel NAME has sections .text.NAME, .nv.info.NAME and .nv.shared.NAME; .nv.info has facts of all functions, by
// symbol. The attributes' numbers and the operands' places are those that cuobjdump -elf and nvdisasm -hex show.
#include "programs/machine_code.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>

#include "kiln/error.hpp"
#include "manifest/key.hpp"

namespace bench {
namespace {

using Bytes = std::span<const std::byte>;

template <class T>
T read_at(Bytes bytes, std::size_t at) {
  T value{};
  if (at > bytes.size() || sizeof value > bytes.size() - at)
    throw kiln::Error(kiln::ErrorKind::bad_input, "the cubin ends within one of its tables");
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

struct Section {
  std::string name;
  Bytes content;            // none of a section without bytes in the file
  std::uint64_t bytes = 0;  // in memory
};

std::vector<Section> sections_of(Bytes image) {
  const auto header = read_at<Elf64_Ehdr>(image, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
    throw kiln::Error(kiln::ErrorKind::bad_input, "the cubin is no ELF file of 64 bits");
  const auto header_of = [&](std::size_t index) {
    return read_at<Elf64_Shdr>(image, header.e_shoff + index * sizeof(Elf64_Shdr));
  };
  const std::size_t names = header_of(header.e_shstrndx).sh_offset;
  std::vector<Section> sections;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr each = header_of(i);
    Section section{{}, {}, each.sh_size};
    for (std::size_t at = names + each.sh_name; read_at<char>(image, at) != '\0'; ++at)
      section.name += read_at<char>(image, at);
    if (each.sh_type != SHT_NOBITS && each.sh_size > 0) {
      read_at<std::byte>(image, each.sh_offset + each.sh_size - 1);
      section.content = image.subspan(each.sh_offset, each.sh_size);
    }
    sections.push_back(std::move(section));
  }
  return sections;
}

const Section* find(const std::vector<Section>& sections, const std::string& name) {
  const auto found =
      std::find_if(sections.begin(), sections.end(), [&](const Section& each) { return each.name == name; });
  return found == sections.end() ? nullptr : &*found;
}

/// Attributes of .nv.info and of .nv.info.NAME.
enum class Attribute : std::uint8_t {
  param_cbank = 0x0a,   // u32 symbol, u16 offset of the parameters in bank 0, u16 their bytes
  frame_size = 0x11,    // u32 symbol, u32 bytes of local memory
  regcount = 0x2f,      // u32 symbol, u32 registers
  num_barriers = 0x4c,  // in the 16 bits of the attribute itself
};

/// Calls `visit(attribute, its 16 bits, payload)` for each attribute of a section.
template <class Visit>
void each_attribute(Bytes info, Visit visit) {
  constexpr std::uint8_t format_sized = 4;  // the 16 bits are the payload's size; other formats have no payload
  while (info.size() >= 4) {
    const auto number = read_at<std::uint16_t>(info, 2);
    const std::size_t payload = read_at<std::uint8_t>(info, 0) == format_sized ? number : 0;
    if (payload > info.size() - 4) throw kiln::Error(kiln::ErrorKind::bad_input, "the cubin's notes end within one");
    visit(read_at<Attribute>(info, 1), number, info.subspan(4, payload));
    info = info.subspan(4 + payload);
  }
}

/// The loads of Hopper that name a constant: LDC and ULDC, bits 0 to 11. Bank and offset are bits 54 to 58 and 38 to 53. No other instruction has a
/// constant there, and instructions of other architectures are compared as they are.
constexpr std::uint64_t load_constant = 0xb82, load_uniform_constant = 0xab9;
constexpr std::size_t instruction_bytes = 16;
constexpr int offset_bit = 38, bank_bit = 54, index_bit = 24;
constexpr std::uint64_t offset_mask = 0xffff, bank_mask = 0x1f, opcode_mask = 0xfff;
constexpr std::uint64_t index_mask = 0xff, no_index = 0xff;  // of LDC: the register that it adds to the offset

/// The parameters of one kernel in constant bank 0.
struct Parameters {
  std::uint64_t begin = 0, end = 0;
};

/// Returns a kernel's instructions with each parameter's offset replaced by its rank among those that the code reads, by first use. An indexed
/// load's offset is no parameter's place, since its register may hold a part of the place: such offsets have ranks of their own.
/// `reads_tables` becomes true where it reads another bank, whose content counts then.
std::vector<std::uint64_t> normal_code(Bytes code, Parameters parameters, bool& reads_tables) {
  std::map<std::uint64_t, std::uint64_t> direct, indexed;
  std::vector<std::uint64_t> words;
  for (std::size_t at = 0; at < code.size(); at += instruction_bytes) {
    auto low = read_at<std::uint64_t>(code, at);
    const auto high = read_at<std::uint64_t>(code, at + 8);
    const std::uint64_t opcode = low & opcode_mask;
    if (opcode == load_constant || opcode == load_uniform_constant) {
      const std::uint64_t bank = (low >> bank_bit) & bank_mask, offset = (low >> offset_bit) & offset_mask;
      if (bank != 0) reads_tables = true;
      if (bank == 0 && offset >= parameters.begin && offset < parameters.end) {
        auto& ranks = opcode == load_constant && ((low >> index_bit) & index_mask) != no_index ? indexed : direct;
        const std::uint64_t rank = ranks.try_emplace(offset, ranks.size()).first->second;
        low = (low & ~(offset_mask << offset_bit)) | ((parameters.begin + rank) << offset_bit);
      }
    }
    words.push_back(low);
    words.push_back(high);
  }
  return words;
}

Bytes bytes_of(const std::vector<std::uint64_t>& words) { return std::as_bytes(std::span(words)); }

/// Facts of all functions, by the section of their code.
std::map<std::size_t, Function> functions_of(const std::vector<Section>& sections) {
  std::map<std::size_t, Function> functions;
  const Section *const info = find(sections, ".nv.info"), *const symbols = find(sections, ".symtab");
  if (info == nullptr || symbols == nullptr) return functions;
  each_attribute(info->content, [&](Attribute attribute, std::uint16_t /*number*/, Bytes payload) {
    if (attribute != Attribute::regcount && attribute != Attribute::frame_size) return;
    const auto symbol = read_at<Elf64_Sym>(symbols->content, read_at<std::uint32_t>(payload, 0) * sizeof(Elf64_Sym));
    Function& function = functions[symbol.st_shndx];
    const auto value = read_at<std::uint32_t>(payload, 4);
    if (attribute == Attribute::regcount)
      function.registers = std::max(function.registers, static_cast<int>(value));
    else
      function.spill_bytes = std::max(function.spill_bytes, static_cast<std::int64_t>(value));
  });
  return functions;
}

}  // namespace

MachineCode machine_code(Bytes image) {
  constexpr std::string_view text = ".text.";
  const std::vector<Section> sections = sections_of(image);
  const std::map<std::size_t, Function> facts = functions_of(sections);
  MachineCode result;
  kiln::manifest::Hasher hasher;
  bool reads_tables = false;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    if (sections[i].name.starts_with(".rela.text.") && !sections[i].content.empty()) reads_tables = true;
    if (!sections[i].name.starts_with(text)) continue;
    const std::string name = sections[i].name.substr(text.size());
    Parameters parameters;
    std::int64_t barriers = 0;
    if (const Section* const info = find(sections, ".nv.info." + name)) {
      each_attribute(info->content, [&](Attribute attribute, std::uint16_t number, Bytes payload) {
        if (attribute == Attribute::num_barriers) barriers = number;
        if (attribute != Attribute::param_cbank) return;
        parameters.begin = read_at<std::uint16_t>(payload, 4);
        parameters.end = parameters.begin + read_at<std::uint16_t>(payload, 6);
      });
    }
    const Section* const shared = find(sections, ".nv.shared." + name);
    const auto known = facts.find(i);
    Function& function = result.functions.emplace_back(known == facts.end() ? Function{} : known->second);
    const auto code = normal_code(sections[i].content, parameters, reads_tables);
    kiln::manifest::Hasher alone;
    for (kiln::manifest::Hasher* const each : {&hasher, &alone})
      each->field(bytes_of(code))
          .field(std::int64_t{function.registers})
          .field(function.spill_bytes)
          .field(shared == nullptr ? std::int64_t{0} : static_cast<std::int64_t>(shared->bytes))
          .field(barriers);
    function.digest = kiln::manifest::to_hex(alone.finish());
  }
  if (reads_tables)
    for (Function& each : result.functions) each.digest.clear();
  if (reads_tables)  // with whatever places the code or its tables name
    for (const Section& each : sections)
      if (each.name.starts_with(".nv.constant") || each.name.starts_with(".nv.global") ||
          each.name.starts_with(".rel") || each.name == ".symtab")
        hasher.field(each.name).field(each.content);
  result.digest = kiln::manifest::to_hex(hasher.finish());
  return result;
}

}  // namespace bench
