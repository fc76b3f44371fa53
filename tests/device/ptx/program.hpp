// The text of an asm statement, read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace emulator {

class Call;

/// Where an instruction's operand comes from or goes to.
struct Token {
  enum class Kind { operand, local, number, special, nothing } kind;
  unsigned index = 0;      // of the asm statement's operands, or of the program's own registers
  std::int64_t value = 0;  // of a number; what is added to an address
  std::string name;        // of a special register
};

struct Instruction {
  using Handler = void (*)(Call&);

  std::string opcode;
  std::vector<std::string> parts;  // of the opcode, between its points
  std::vector<std::vector<Token>>
      operands;               // what stands between commas, brackets and braces dissolved: [map, {x, y}] is map, x, y
  Handler handler = nullptr;  // null for a branch
  int guard = -1;             // own register that must be true
  bool guard_negated = false;
  std::size_t target = 0;  // of a branch

  [[nodiscard]] bool has(std::string_view part) const;
};

struct Program {
  /// `text` with the texts of "C" operands filled in and %% made %. Throws Fault for what the emulator does not know.
  explicit Program(const std::string& text);

  std::vector<Instruction> instructions;
  unsigned locals = 0;  // registers of its own
};

}  // namespace emulator
