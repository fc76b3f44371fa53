// Repeats a tune that tune/recording.hpp wrote down, without a device, a compiler or a library.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "store/record.hpp"
#include "tune/recording.hpp"

namespace kiln::tune {

struct Replayed {
  enum class Outcome : std::uint8_t {
    same,          // the same configs for the same sizes
    other,         // other configs, or other sizes
    not_measured,  // the search asks for what the recorded one did not
  } outcome = Outcome::same;
  std::string why;  // unless it is the same: what is chosen now, or what was not measured
};
/// "same", "other", "not measured"
std::string_view to_string(Replayed::Outcome outcome) noexcept;

/// Searches the bucket of a line as this build does, answered by the line. `op` is the line's. A tune that its time
/// limit ended is not_measured. Throws Error(bad_input) where the line cannot be read.
Replayed replay(const SampleJson& line, const manifest::Op& op);
/// Throws Error(bad_input) where the text is no line of a recording.
SampleJson read_recording(std::string_view text);

}  // namespace kiln::tune
