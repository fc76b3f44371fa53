// Instructions that a warp carries out together on 8 x 8 matrices, and the products of their fragments.
#include <array>

#include "emulator/machine.hpp"
#include "ptx/call.hpp"
#include "ptx/fragments.hpp"
#include "ptx/instructions.hpp"

namespace emulator::instructions {
namespace {

using Lanes = std::array<Call*, 32>;
constexpr unsigned all_lanes = 0xffffffffu;

unsigned matrices_of(const Call& call) { return call.has("x4") ? 4 : call.has("x2") ? 2 : 1; }

/// Where element (row, column) of matrix `index` of 16-bit elements lies: each row begins at an address that a lane gives as `operand`.
std::byte* element(const Lanes& lanes, std::size_t operand, unsigned index, unsigned row, unsigned column) {
  return own_shared(lanes[index * 8 + row]->word(operand), 16, 16) + column * 2;
}

/// visit(element's address, lane, which half of its register) for each element of matrix `index`.
template <typename Visit>
void each_element(const Lanes& lanes, std::size_t operand, unsigned index, bool transposed, Visit visit) {
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned outer = lane / 4, inner = lane % 4 * 2 + half;
      visit(transposed ? element(lanes, operand, index, inner, outer) : element(lanes, operand, index, outer, inner),
            lane, half);
    }
  }
}

void multiply(const Lanes& lanes) {
  const Instruction& instruction = lanes[0]->instruction();
  const auto& parts = instruction.parts;  // mma sync aligned m16n8k16 row col f32 A B f32
  const Fragments a{format_of(parts[7]), 1, 16}, b{format_of(parts[8]), 2, 8};
  const unsigned depth = 8 * 32 / a.format.bits;
  if (parts[3] != fmt::format("m16n8k{}", depth) || !lanes[0]->has("f32"))
    fault("the emulator does not know the instruction {}", instruction.opcode);
  float left[16][32], right[8][32];
  for (unsigned k = 0; k < depth; ++k) {
    for (unsigned row = 0; row < 16; ++row) left[row][k] = a.at(lanes.data(), row, k);
    for (unsigned column = 0; column < 8; ++column) right[column][k] = b.at(lanes.data(), column, k);
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      float sum = lanes[lane]->number(3, i);
      for (unsigned k = 0; k < depth; ++k) sum += left[row][k] * right[column][k];
      lanes[lane]->set_number(sum, 0, i);
    }
  }
}

}  // namespace

void ldmatrix(Call& call) {
  meet_in_warp("ldmatrix", all_lanes, call, [](const Lanes& lanes) {
    const Call& any = *lanes[0];
    for (unsigned index = 0; index < matrices_of(any); ++index) {
      std::array<std::uint32_t, 32> registers{};
      each_element(lanes, 1, index, any.has("trans"), [&](const std::byte* from, unsigned lane, unsigned half) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, from, sizeof bits);
        registers[lane] |= static_cast<std::uint32_t>(bits) << half * 16;
      });
      for (unsigned lane = 0; lane < 32; ++lane) lanes[lane]->set(registers[lane], 0, index);
    }
  });
}

void stmatrix(Call& call) {
  meet_in_warp("stmatrix", all_lanes, call, [](const Lanes& lanes) {
    const Call& any = *lanes[0];
    for (unsigned index = 0; index < matrices_of(any); ++index) {
      each_element(lanes, 0, index, any.has("trans"), [&](std::byte* to, unsigned lane, unsigned half) {
        const auto bits = static_cast<std::uint16_t>(lanes[lane]->word(1, index) >> half * 16);
        std::memcpy(to, &bits, sizeof bits);
      });
    }
  });
}

void mma(Call& call) {
  meet_in_warp("mma.sync", all_lanes, call, [](const Lanes& lanes) { multiply(lanes); });
}

}  // namespace emulator::instructions
