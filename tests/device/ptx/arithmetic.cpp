// Instructions of one thread on registers.
#include <bit>
#include <cmath>

#include "emulator/fault.hpp"
#include "ptx/call.hpp"
#include "ptx/formats.hpp"
#include "ptx/instructions.hpp"

namespace emulator::instructions {
namespace {

/// The type's width in an opcode such as mov.b32.
unsigned bits_of(const std::string& type) { return static_cast<unsigned>(std::stoul(type.substr(1))); }

float flushed(const Call& call, float value) {
  return call.has("ftz") && std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

/// The element type of bf16x2 and its like, which hold two.
std::string_view without_x2(std::string_view type) {
  return type.ends_with("x2") ? type.substr(0, type.size() - 2) : type;
}

}  // namespace

/// Also to and from several registers that make up one.
void mov(Call& call) {
  const unsigned bits = bits_of(call.instruction().parts.back());
  std::uint64_t value = 0;
  const unsigned from = bits / static_cast<unsigned>(call.size(1)), to = bits / static_cast<unsigned>(call.size(0));
  const auto part = [](std::uint64_t of, unsigned width) { return width == 64 ? of : of & ((1ull << width) - 1); };
  for (unsigned j = 0; j < call.size(1); ++j) value |= part(call.get(1, j), from) << j * from;
  for (unsigned j = 0; j < call.size(0); ++j) call.set(part(value >> j * to, to), 0, j);
}

void setp(Call& call) {
  if (!call.has("b32") && !call.has("u32") && !call.has("s32"))
    fault("the emulator knows {} of 32-bit integers only", call.instruction().opcode);
  const unsigned a = call.word(1), b = call.word(2);
  if (call.has("ne")) return call.set(a != b, 0);
  if (call.has("eq")) return call.set(a == b, 0);
  fault("the emulator does not know the instruction {}", call.instruction().opcode);
}

void selp(Call& call) { call.set(call.get(3) != 0 ? call.get(1) : call.get(2), 0); }

/// To and from f32 or two elements of f16; of two results, the first source is the upper.
void cvt(Call& call) {
  const auto& parts = call.instruction().parts;
  const std::string &to = parts[parts.size() - 2], &from = parts.back();
  if (from == "f32") {
    const Format& format = format_of(without_x2(to));
    if (!to.ends_with("x2")) return call.set(format.encode(call.number(1)), 0);
    return call.set(format.encode(call.number(2)) | format.encode(call.number(1)) << format.bits, 0);
  }
  const Format& source = format_of(without_x2(from));
  if (to == "f32") return call.set_number(source.decode(call.word(1)), 0);
  const Format& format = format_of(without_x2(to));
  const std::uint32_t low = format.encode(source.decode(call.word(1)));
  const std::uint32_t high = format.encode(source.decode(call.word(1) >> source.bits));
  call.set(low | high << format.bits, 0);
}

void mul(Call& call) { call.set_number(call.number(1) * call.number(2), 0); }
void rcp(Call& call) { call.set_number(flushed(call, 1.0f / flushed(call, call.number(1))), 0); }
void ex2(Call& call) { call.set_number(flushed(call, std::exp2(flushed(call, call.number(1)))), 0); }
/// Rounded to 11 bits, so wrong by 2^-11 of itself: as much as the hardware's may be.
void tanh(Call& call) {
  const float exact = std::tanh(call.number(1));
  int exponent = 0;
  const float significand = std::round(std::frexp(exact, &exponent) * 2048);
  call.set_number(std::isnan(exact) ? exact : std::ldexp(significand, exponent - 11), 0);
}

}  // namespace emulator::instructions
