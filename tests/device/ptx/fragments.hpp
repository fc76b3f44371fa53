// How the lanes of a warp hold a matrix between them.
#pragma once

#include "ptx/call.hpp"
#include "ptx/formats.hpp"

namespace emulator {

/// An operand of mma, or a in registers of wgmma: a lane's register holds neighbours in one row, of rows l / 4, those 8 further down
/// (of a), and again as far right as four lanes reach. b's "rows" are its columns.
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
