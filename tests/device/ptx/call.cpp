#include "ptx/call.hpp"

#include <array>
#include <deque>
#include <string>

#include "emulator/fault.hpp"
#include "emulator/machine.hpp"

namespace emulator {
namespace {

std::uint64_t special(const std::string& name) {
  if (name == "cluster_ctarank") return current_block().rank;
  if (name == "cluster_nctarank") return current_cluster().blocks.size();
  if (name == "laneid") return current().lane();
  if (name == "globaltimer") return nanoseconds();
  if (name == "warpid") return current().number / 32;
  fault("the emulator knows no register %{}", name);
}

/// With the texts of operands that are texts in their places, and %% as %.
std::string filled_in(std::string_view text, std::span<const Operand> operands) {
  std::string filled;
  for (std::size_t i = 0; i < text.size(); ++i) {
    filled += text[i];
    if (text[i] != '%') continue;
    if (text[i + 1] == '%') {
      ++i;
      continue;
    }
    std::size_t end = i + 1, index = 0;
    for (; end < text.size() && text[end] >= '0' && text[end] <= '9'; ++end)
      index = index * 10 + static_cast<std::size_t>(text[end] - '0');
    if (end == i + 1 || operands[index].text == nullptr) continue;
    filled.back() = operands[index].text[0];
    filled += operands[index].text + 1;
    i = end - 1;
  }
  return filled;
}

}  // namespace

std::uint64_t Call::get(std::size_t i, std::size_t j) const {
  const Token& from = token(i, j);
  std::uint64_t value = 0;
  switch (from.kind) {
    case Token::Kind::operand: {
      const Operand& operand = operands_[from.index];
      if (operand.variable == nullptr) {
        value = operand.value;
      } else {
        std::memcpy(&value, operand.variable, operand.bytes);
      }
      break;
    }
    case Token::Kind::local: value = locals_[from.index]; break;
    case Token::Kind::number: break;
    case Token::Kind::special: return special(from.name);
    case Token::Kind::nothing: fault("{} reads _", instruction_.opcode);
  }
  return value + static_cast<std::uint64_t>(from.value);
}

void Call::set(std::uint64_t value, std::size_t i, std::size_t j) {
  const Token& to = token(i, j);
  if (to.kind == Token::Kind::nothing) return;
  if (to.kind == Token::Kind::local) {
    locals_[to.index] = value;
    return;
  }
  if (to.kind != Token::Kind::operand || operands_[to.index].variable == nullptr)
    fault("{} writes to what is no output of its asm statement", instruction_.opcode);
  std::memcpy(operands_[to.index].variable, &value, operands_[to.index].bytes);
}

float* Call::variable(std::size_t i, std::size_t j) const {
  const Token& to = token(i, j);
  if (to.kind != Token::Kind::operand || operands_[to.index].variable == nullptr)
    fault("{} writes to what is no output of its asm statement", instruction_.opcode);
  return static_cast<float*>(operands_[to.index].variable);
}

void run_ptx(const Program*& program, const char* text, std::span<Operand> operands) {
  if (program == nullptr) {
    static std::deque<Program> read;
    program = &read.emplace_back(filled_in(text, operands));
  }
  run(*program, operands);
}

void run(const Program& program, std::span<Operand> operands) {
  maybe_pause();
  std::array<std::uint64_t, 16> locals{};
  for (std::size_t next = 0; next < program.instructions.size();) {
    const Instruction& instruction = program.instructions[next++];
    if (instruction.guard >= 0 &&
        (locals[static_cast<std::size_t>(instruction.guard)] != 0) == instruction.guard_negated)
      continue;
    if (instruction.handler == nullptr) {
      next = instruction.target;
      continue;
    }
    Call call(instruction, operands, locals);
    instruction.handler(call);
  }
}

}  // namespace emulator
