#include "remote/redis/connection.hpp"

#include <algorithm>

#include "remote/redis/errors.hpp"

namespace kiln::remote::redis {
namespace {

constexpr std::chrono::milliseconds connect_limit(100);
constexpr ReplyLimits greeting_limits{4096, 0};

}  // namespace

Connection::Connection(const Address& address, const TlsContext* tls, Deadline deadline) {
  const Deadline connected = std::min(deadline, std::chrono::steady_clock::now() + connect_limit);
  wire_ = std::make_unique<Socket>(address.host, address.port, address.path, connected);
  if (tls != nullptr) wire_ = std::make_unique<TlsWire>(*tls, std::move(wire_), deadline);
  greet(address, deadline);
}

void Connection::greet(const Address& address, Deadline deadline) {
  std::vector<std::string> commands;
  if (!address.user.empty())
    commands.push_back(command_of({"AUTH", address.user, address.password}));
  else if (!address.password.empty())
    commands.push_back(command_of({"AUTH", address.password}));
  if (address.database != 0) commands.push_back(command_of({"SELECT", std::to_string(address.database)}));
  for (const Reply& reply : ask(commands, greeting_limits, deadline))
    if (reply.kind == Reply::Kind::error) throw failure_of(reply.text);
}

std::vector<Reply> Connection::ask(const std::vector<std::string>& commands, const ReplyLimits& limits,
                                   Deadline deadline) {
  reader_.set_limits(limits);
  outstanding_ = commands.size();
  std::vector<Reply> replies;
  try {
    for (const std::string& command : commands) wire_->send(command, deadline);
    while (outstanding_ != 0) receive(replies, deadline);
  } catch (const Failure& failure) {
    if (failure.kind() == Failure::Kind::unreachable) tell_last_words(replies, deadline);
    throw;
  }
  if (!reader_.is_empty()) {
    spoil();
    throw Failure(Failure::Kind::damaged, "the Redis server answered more often than it was asked");
  }
  return replies;
}

void Connection::receive(std::vector<Reply>& replies, Deadline deadline) {
  auto reply = reader_.next();
  for (; !reply; reply = reader_.next()) reader_.feed(wire_->receive(deadline));
  replies.push_back(std::move(*reply));
  --outstanding_;
}

/// A server may say why it hangs up: it has too many clients, or asks for a certificate.
void Connection::tell_last_words(std::vector<Reply>& replies, Deadline deadline) {
  try {
    if (replies.empty()) receive(replies, deadline);
  } catch (const Failure& failure) {
    if (failure.kind() == Failure::Kind::unreachable) return;
    throw;
  }
  if (replies.back().kind == Reply::Kind::error) throw failure_of(replies.back().text);
}

}  // namespace kiln::remote::redis
