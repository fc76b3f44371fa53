#include "team/clock.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

#include "kiln/error.hpp"

namespace kiln::team {

Clock::time_point end_after(std::chrono::milliseconds timeout) {
  const Clock::time_point now = Clock::now();
  const auto longest = std::chrono::floor<std::chrono::milliseconds>(Clock::time_point::max() - now);
  return now + std::clamp(timeout, std::chrono::milliseconds(0), longest);
}

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

bool wait_until_ready(int socket, short events, Clock::time_point end) {
  for (;;) {
    pollfd waiting{socket, events, 0};
    const int ready = poll(&waiting, 1, milliseconds_until(end));
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= end) return false;
    if (ready < 0 && errno != EINTR)
      throw Error(ErrorKind::io, fmt::format("waiting for a rank: poll: {}", std::strerror(errno)));
  }
}

bool try_again(int error) noexcept { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace kiln::team
