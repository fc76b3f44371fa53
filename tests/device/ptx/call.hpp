// An asm statement as translate writes it, EMULATED_PTX(text, operands...), and how an instruction meets its operands.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "ptx/program.hpp"

namespace emulator {

/// An operand of an asm statement: its value, or the variable that takes one.
struct Operand {
  std::uint64_t value = 0;
  void* variable = nullptr;
  unsigned bytes = 0;
  const char* text = nullptr;  // spliced into the statement
};
template <typename T>
Operand in(const T& value) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  Operand made;
  std::memcpy(&made.value, &value, sizeof(T));
  made.bytes = sizeof(T);
  return made;
}
template <typename T>
Operand out(T& variable) {
  return {0, &variable, sizeof(T), nullptr};
}
template <typename T>
Operand both(T& variable) {
  return out(variable);
}
inline Operand spliced(const char* text) { return {0, nullptr, 0, text}; }

/// One instruction, and the operands that it has in this thread. `i` counts what stands between commas, `j` within braces.
class Call {
 public:
  Call(const Instruction& instruction, std::span<Operand> operands, std::span<std::uint64_t> locals)
      : instruction_(instruction), operands_(operands), locals_(locals) {}

  [[nodiscard]] bool has(std::string_view part) const { return instruction_.has(part); }
  [[nodiscard]] const Instruction& instruction() const { return instruction_; }
  [[nodiscard]] std::size_t size() const { return instruction_.operands.size(); }
  [[nodiscard]] std::size_t size(std::size_t i) const { return instruction_.operands.at(i).size(); }

  [[nodiscard]] std::uint64_t get(std::size_t i, std::size_t j = 0) const;
  [[nodiscard]] unsigned word(std::size_t i, std::size_t j = 0) const { return static_cast<unsigned>(get(i, j)); }
  [[nodiscard]] float number(std::size_t i, std::size_t j = 0) const { return std::bit_cast<float>(word(i, j)); }
  void set(std::uint64_t value, std::size_t i, std::size_t j = 0);
  void set_number(float value, std::size_t i, std::size_t j = 0) { set(std::bit_cast<unsigned>(value), i, j); }
  /// The variable itself, for what is written later.
  [[nodiscard]] float* variable(std::size_t i, std::size_t j) const;

 private:
  [[nodiscard]] const Token& token(std::size_t i, std::size_t j) const { return instruction_.operands.at(i).at(j); }

  const Instruction& instruction_;
  std::span<Operand> operands_;
  std::span<std::uint64_t> locals_;
};

void run(const Program& program, std::span<Operand> operands);
/// Runs `text`; `program` is its place's own, null at first.
void run_ptx(const Program*& program, const char* text, std::span<Operand> operands);

template <typename... Operands>
void run_ptx_with(const Program*& program, const char* text, Operands... operands) {
  Operand all[sizeof...(operands) + 1] = {operands...};
  run_ptx(program, text, std::span(all, sizeof...(operands)));
}

}  // namespace emulator

#define EMULATED_PTX(...)                              \
  [&] {                                                \
    static const emulator::Program* program = nullptr; \
    emulator::run_ptx_with(program, __VA_ARGS__);      \
  }()
