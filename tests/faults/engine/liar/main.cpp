// A program that greets as kiln-worker does and answers honestly, except as it is ordered.
#include <unistd.h>

#include <csignal>

#include "faults/engine/liar/orders.hpp"
#include "process/channel.hpp"
#include "process/message.hpp"

namespace {

using namespace kiln::faults;

void put(const std::vector<unsigned char>& bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t count = write(STDIN_FILENO, bytes.data() + at, bytes.size() - at);
    if (count <= 0) _exit(0);
    at += static_cast<std::size_t>(count);
  }
}

}  // namespace

int main(int, char** arguments) {
  const std::string program = arguments[0];
  std::signal(SIGPIPE, SIG_IGN);
  const kiln::process::Channel channel(STDIN_FILENO);
  channel.send(kiln::process::greeting());
  nlohmann::json message;
  while (channel.receive(message) == kiln::process::Channel::State::received) {
    const Asked asked = kind_of(message);
    Order order = read_order(program);
    if (order.asked != asked) order.what = Order::What::nothing;
    if (order.what == Order::What::die && order.number > 0) {
      --order.number;
      write_order(program, order);
      raise(SIGKILL);
    }
    if (order.what != Order::What::lie) {
      channel.send(honest(asked, message));
      continue;
    }
    const Lie lie = lies_about(asked).at(static_cast<std::size_t>(order.number));
    put(lie.bytes);
    if (lie.ends) _exit(0);
  }
  _exit(0);
}
