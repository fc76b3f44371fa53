// Where the threads of a warp, or of a warpgroup, carry out an instruction together.
#pragma once

#include <array>
#include <string_view>

#include "emulator/fault.hpp"
#include "emulator/wait.hpp"

namespace emulator {

/// At most `size` threads, each with its place and a value of its own.
template <unsigned size>
class Meeting {
 public:
  template <typename Value>
  using Values = std::array<Value*, size>;  // null for those who are not expected

  /// Returns when all `expected` threads have come, the last of whom calls act(values).
  template <typename Value, typename Act>
  void meet(std::string_view what, unsigned place, unsigned expected, Value& mine, Act act) {
    if (present_ > 0 && what != what_)
      fault("lane {} comes to {} while others of its {} wait at {}", place, what, size, what_);
    what_ = what;
    values_[place] = &mine;
    if (++present_ < expected) return await(Others(*this, expected));
    Values<Value> values{};
    for (unsigned i = 0; i < size; ++i) values[i] = static_cast<Value*>(values_[i]);
    values_ = {};
    present_ = 0;
    ++rounds_;
    act(values);
  }

 private:
  struct Others : Wait {
    Others(const Meeting& of, unsigned expects) : meeting(of), round(of.rounds_), expected(expects) {}
    [[nodiscard]] bool over() override { return meeting.rounds_ != round; }
    [[nodiscard]] std::string text() const override {
      return fmt::format("{}, to which {} of {} threads came", meeting.what_, meeting.present_, expected);
    }
    const Meeting& meeting;
    unsigned round, expected;
  };

  std::array<void*, size> values_{};
  unsigned present_ = 0, rounds_ = 0;
  std::string_view what_;
};

}  // namespace emulator
