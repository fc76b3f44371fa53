#include "process/serve.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <thread>

#include "kiln/error.hpp"
#include "process/channel.hpp"
#include "process/message.hpp"

namespace kiln::process {
namespace {

/// The main thread may be in a compile or in a kernel that never ends, so another thread watches the socket. Returns
/// whether it was begun: without it, only an owner that ends before its worker does leaves one behind, until the answer
/// under way is done.
bool exit_when_closed(int descriptor) noexcept {
  try {
    std::thread([descriptor] {
      pollfd peer{descriptor, POLLRDHUP, 0};
      while (poll(&peer, 1, -1) <= 0) {
      }
      _exit(0);
    }).detach();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

void serve(int descriptor, const std::function<nlohmann::json(const nlohmann::json& message)>& answer) {
  const Channel channel(descriptor);
  bool is_watched = exit_when_closed(descriptor);
  if (!channel.send(greeting())) _exit(0);
  nlohmann::json message;
  while (channel.receive(message) == Channel::Outcome::received) {
    is_watched = is_watched || exit_when_closed(descriptor);
    nlohmann::json said;
    bool broken = false;
    try {
      said = answer(message);
    } catch (const Error& error) {
      said = to_json(error);
      broken = error.kind() == ErrorKind::driver_failed;
    } catch (const std::exception& error) {
      said = to_json(Error(ErrorKind::io, fmt::format("the worker could not go on: {}", error.what())));
    }
    if (!channel.send(said) || broken) break;
  }
  _exit(0);
}

}  // namespace kiln::process
