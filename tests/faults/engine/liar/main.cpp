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

/// Returns what the program is to do for this message, once.
Order order_for(const std::string& program, Asked asked) {
  Order order = read_order(program);
  if (order.asked != asked) return {};
  if (order.what == Order::What::die && order.number > 0) {
    --order.number;
    write_order(program, order);
    raise(SIGKILL);
  }
  return order;
}

}  // namespace

int main(int, char** arguments) {
  const std::string program = arguments[0];
  std::signal(SIGPIPE, SIG_IGN);
  const kiln::process::Channel channel(STDIN_FILENO);
  order_for(program, Asked::greeting);
  channel.send(kiln::process::greeting());
  nlohmann::json message;
  while (channel.receive(message) == kiln::process::Channel::Outcome::received) {
    const Asked asked = kind_of(message);
    const Order order = order_for(program, asked);
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
