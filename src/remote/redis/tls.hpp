// TLS over a wire.
#pragma once

#include <memory>
#include <string>

#include "remote/redis/address.hpp"
#include "remote/redis/wire.hpp"

struct ssl_ctx_st;
struct ssl_st;
struct bio_st;

namespace kiln::remote::redis {

/// What TLS connections of one address share.
class TlsContext {
 public:
  /// Reads the files that the address names. Throws Error(bad_input) for one that cannot be used.
  explicit TlsContext(const Address& address);
  [[nodiscard]] ssl_ctx_st* get() const noexcept { return context_.get(); }
  [[nodiscard]] const std::string& certified_name() const noexcept { return certified_name_; }

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const noexcept;
  };
  std::unique_ptr<ssl_ctx_st, Free> context_;
  std::string certified_name_;
};

/// The server's certificate must be valid and name TlsContext::certified_name().
class TlsWire final : public Wire {
 public:
  /// Greets the server over `below`. Throws RemoteFailure as the wire below does; refused where either side does not
  /// trust the other.
  TlsWire(const TlsContext& context, std::unique_ptr<Wire> below, Deadline deadline);
  void send(std::string_view bytes, Deadline deadline) override;
  std::string_view receive(Deadline deadline) override;

 private:
  struct Free {
    void operator()(ssl_st* session) const noexcept;
  };
  /// Calls `step`, which returns what a function of OpenSSL does, until it succeeds, and carries bytes between the
  /// session and the wire below.
  template <class Step>
  int drive(Step&& step, Deadline deadline);
  void send_encrypted(Deadline deadline);

  std::unique_ptr<Wire> below_;
  std::unique_ptr<ssl_st, Free> session_;
  bio_st *received_ = nullptr, *to_send_ = nullptr;  // the session owns them
  char buffer_[std::size_t{16} << 10];
};

}  // namespace kiln::remote::redis
