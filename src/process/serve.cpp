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

/// The main thread may be in a compile or in a kernel that never ends, so another thread watches the socket.
void exit_when_closed(int descriptor) {
  std::thread([descriptor] {
    pollfd peer{descriptor, POLLRDHUP, 0};
    while (poll(&peer, 1, -1) <= 0) {
    }
    _exit(0);
  }).detach();
}

}  // namespace

void serve(int descriptor, const std::function<nlohmann::json(const nlohmann::json& message)>& answer) {
  const Channel channel(descriptor);
  exit_when_closed(descriptor);
  if (!channel.send(greeting())) _exit(0);
  nlohmann::json message;
  while (channel.receive(message) == Channel::State::received) {
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
