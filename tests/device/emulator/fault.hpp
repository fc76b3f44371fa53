// What a kernel did wrong, or the emulator cannot do.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace emulator {

/// Ends the launch: emulator::launch throws it, with the thread that it happened in.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename... Values>
[[noreturn]] void fault(fmt::format_string<Values...> text, Values&&... values) {
  throw Fault(fmt::format(text, std::forward<Values>(values)...));
}

}  // namespace emulator
