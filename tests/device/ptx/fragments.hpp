// How the lanes of a warp hold a matrix between them.
#pragma once

#include "ptx/call.hpp"
#include "ptx/formats.hpp"

namespace emulator {

/// An operand of mma, or a of wgmma in registers. A register of lane l holds neighbours of row l / 4, the l % 4th in the row. The next
/// one is 8 rows further down (of a), the ones after are as far right as four lanes reach. What is called a row is a column of b.
struct Fragments {
  const Format& format;
  std::size_t operand;
  unsigned rows;  // 16 of a, 8 of b

  /// `lanes`: the calls of the 32 lanes.
  [[nodiscard]] float at(Call* const* lanes, unsigned row, unsigned column) const {
    const unsigned neighbours = 32 / format.bits;
    const unsigned lane = row % 8 * 4 + column / neighbours % 4;
    const unsigned far = column / (4 * neighbours), index = rows == 16 ? far * 2 + row / 8 : far;
    return format.decode(lanes[lane]->word(operand, index) >> column % neighbours * format.bits &
                         ((1u << format.bits) - 1));
  }
};

}  // namespace emulator
