// The ends of waits, and waits for sockets.
#pragma once

#include <chrono>

namespace kiln::team {

using Clock = std::chrono::steady_clock;

/// Returns the time that is `timeout` from now; the clock's last for a longer one, now for a negative one.
Clock::time_point end_after(std::chrono::milliseconds timeout);
/// As poll(2) takes it: milliseconds from now, 0 for a time that has passed, INT_MAX at most.
int milliseconds_until(Clock::time_point end);

/// Waits for `events` of poll(2), or that the other end is closed. Returns false at `end`. Throws Error(io).
bool wait_until_ready(int socket, short events, Clock::time_point end);
/// Whether a call that failed with this errno is to be made again, once the socket is ready.
bool try_again(int error) noexcept;

}  // namespace kiln::team
