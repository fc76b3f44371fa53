// What a test orders a lying worker to do, in a file beside the program.
#pragma once

#include <fstream>
#include <string>

#include "faults/engine/liar/lies.hpp"

namespace kiln::faults {

struct Order {
  enum class What { nothing, lie, die } what = What::nothing;
  Asked asked = Asked::begin;
  int number = 0;  // the lie; or how many processes still kill themselves with SIGKILL
};

inline std::string order_file(const std::string& program) { return program + ".order"; }

inline Order read_order(const std::string& program) {
  std::ifstream file(order_file(program));
  int what = 0, asked = 0, number = 0;
  file >> what >> asked >> number;
  return {static_cast<Order::What>(what), static_cast<Asked>(asked), number};
}

inline void write_order(const std::string& program, const Order& order) {
  std::ofstream(order_file(program)) << static_cast<int>(order.what) << ' ' << static_cast<int>(order.asked) << ' '
                                     << order.number;
}

}  // namespace kiln::faults
