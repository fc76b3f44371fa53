// The products that a warpgroup has begun: wgmma.
#pragma once

#include <bitset>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "emulator/in_flight.hpp"
#include "emulator/meeting.hpp"

namespace emulator {

/// 64 x n sums while products are added to them. Meanwhile their registers are NaN: each thread gets its own back when it waits.
struct Accumulators {
  std::vector<float*> registers;  // n / 2 of each thread
  std::vector<float> values;      // theirs
  std::uint64_t last = 0;         // number of the last product
  std::bitset<128> returned;      // to which threads
};

class Warpgroup {
 public:
  Meeting<128> meeting;

  void fence(unsigned thread) { fenced_.set(thread); }
  /// Of these registers, whether products are under way for them or not.
  std::shared_ptr<Accumulators> accumulators(std::vector<float*> registers);
  /// `multiply` happens after all that were begun before it.
  void begin(InFlight& in_flight, std::shared_ptr<Accumulators> to, std::function<void()> multiply);
  void commit() {
    groups_.commit();
    commits_.push_back(begun_);
  }
  void wait(unsigned thread, std::size_t pending);
  [[nodiscard]] bool under_way() const { return groups_.under_way(); }

 private:
  void run_through(std::uint64_t number);

  std::bitset<128> fenced_;  // since they last waited
  std::vector<std::shared_ptr<Accumulators>> in_use_;
  std::deque<std::function<void()>> products_;
  std::uint64_t begun_ = 0, ended_ = 0;
  std::vector<std::uint64_t> commits_;  // products begun before each
  Groups groups_;
};

}  // namespace emulator
