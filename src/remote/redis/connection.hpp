// A connection to a Redis server that has let Kiln in: commands go out, answers come in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "remote/redis/address.hpp"
#include "remote/redis/protocol.hpp"
#include "remote/redis/tls.hpp"
#include "remote/redis/wire.hpp"

namespace kiln::remote::redis {

class Connection {
 public:
  /// Connects, greets, and selects the database. `tls` is null where the address has none.
  Connection(const Address& address, const TlsContext* tls, Deadline deadline);
  /// Sends the commands at once and returns their answers, errors too. Throws RemoteFailure and ReplyTooLarge.
  std::vector<Reply> ask(const std::vector<std::string>& commands, const ReplyLimits& limits, Deadline deadline);
  /// Whether all answers have come, and nothing is left that a later command would meet.
  [[nodiscard]] bool is_usable() const noexcept { return outstanding_ == 0 && !spoilt_; }
  /// Says that the server has a state of this connection, or sends answers to it, that no later command shall meet.
  void spoil() noexcept { spoilt_ = true; }
  /// Says that the state is gone.
  void mend() noexcept { spoilt_ = false; }

 private:
  void greet(const Address& address, Deadline deadline);
  /// Waits for the next answer.
  void receive(std::vector<Reply>& replies, Deadline deadline);
  /// Throws what the server said before it hung up, if that was an error.
  void tell_last_words(std::vector<Reply>& replies, Deadline deadline);

  std::unique_ptr<Wire> wire_;
  ReplyReader reader_;
  std::size_t outstanding_ = 0;
  bool spoilt_ = false;
};

}  // namespace kiln::remote::redis
