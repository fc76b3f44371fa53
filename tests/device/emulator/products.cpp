#include "emulator/products.hpp"

#include <limits>
#include <utility>

namespace emulator {

std::shared_ptr<Accumulators> Warpgroup::accumulators(std::vector<float*> registers) {
  for (const auto& known : in_use_) {
    if (known->registers != registers) continue;
    if (known->returned.any()) fault("wgmma adds to registers that some threads have waited for and others have not");
    return known;
  }
  if (!fenced_.all()) fault("wgmma without wgmma.fence, after its registers were used otherwise");
  auto made = std::make_shared<Accumulators>();
  for (float* each : registers) {
    made->values.push_back(*each);
    *each = std::numeric_limits<float>::quiet_NaN();
  }
  made->registers = std::move(registers);
  return in_use_.emplace_back(std::move(made));
}

void Warpgroup::begin(InFlight& in_flight, std::shared_ptr<Accumulators> to, std::function<void()> multiply) {
  to->last = ++begun_;
  products_.push_back(std::move(multiply));
  groups_.add(in_flight.begin([this, number = begun_] { run_through(number); }));
}

void Warpgroup::run_through(std::uint64_t number) {
  for (; ended_ < number; ++ended_) {
    products_.front()();
    products_.pop_front();
  }
}

void Warpgroup::wait(unsigned thread, std::size_t pending) {
  groups_.wait(pending);
  fenced_.reset(thread);
  // What has ended early, without having been waited for, is still not the thread's.
  const std::uint64_t waited_for = pending < commits_.size() ? commits_[commits_.size() - 1 - pending] : 0;
  for (const auto& each : in_use_) {
    if (each->last > waited_for || each->returned.test(thread)) continue;
    const std::size_t count = each->registers.size() / 128;
    for (std::size_t i = thread * count; i < (thread + 1) * count; ++i) *each->registers[i] = each->values[i];
    each->returned.set(thread);
  }
  std::erase_if(in_use_, [](const auto& each) { return each->returned.all(); });
}

}  // namespace emulator
