#include "remote/redis/tls.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <new>

#include "kiln/error.hpp"

namespace kiln::remote::redis {
namespace {

void need_usable(bool is_usable, std::string_view what, const std::string& file) {
  if (!is_usable)
    throw Error(ErrorKind::bad_input,
                fmt::format("the file {} of the Redis server's address cannot be used as {}", file, what));
}

bool is_numeric_address(const std::string& host) {
  in6_addr ignored;
  return inet_pton(AF_INET, host.c_str(), &ignored) == 1 || inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

/// Both sides' refusals are errors of one kind in OpenSSL. None of these texts names a host or a user.
[[noreturn]] void fail_handshake(ssl_st* session) {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  if (const long verified = SSL_get_verify_result(session); verified != X509_V_OK)
    throw Failure(Failure::Kind::refused,
                  fmt::format("the Redis server's certificate is not trusted: {}; its authority can be named by ca= in "
                              "the address or KILN_REDIS_CA, what it names by name= or KILN_REDIS_NAME",
                              X509_verify_cert_error_string(verified)));
  const int reason = ERR_GET_REASON(error);
  if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG)
    throw Failure(Failure::Kind::damaged, "the Redis server's port has no TLS; without TLS the address is redis://");
  const char* text = ERR_reason_error_string(error);
  throw Failure(
      Failure::Kind::refused,
      fmt::format("the TLS connection to the Redis server failed: {}; where the server asks for a certificate, "
                  "name it by cert= and key= in the address or KILN_REDIS_CERT and KILN_REDIS_KEY",
                  text != nullptr ? text : "no reason given"));
}

}  // namespace

void TlsContext::Free::operator()(ssl_ctx_st* context) const noexcept { SSL_CTX_free(context); }

TlsContext::TlsContext(const Address& address)
    : context_(SSL_CTX_new(TLS_client_method())),
      certified_name_(address.certified_name.empty() ? address.host : address.certified_name) {
  if (!context_) throw std::bad_alloc();
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_default_passwd_cb(context_.get(),
                                [](char*, int, int, void*) { return -1; });  // else it asks the terminal
  const std::string &ca = address.ca_file, &certificate = address.certificate_file, &key = address.key_file;
  if (ca.empty())
    SSL_CTX_set_default_verify_paths(context_.get());
  else
    need_usable(SSL_CTX_load_verify_file(context_.get(), ca.c_str()) == 1, "a certificate authority (PEM)", ca);
  if (!certificate.empty()) {
    need_usable(SSL_CTX_use_certificate_chain_file(context_.get(), certificate.c_str()) == 1, "a certificate (PEM)",
                certificate);
    need_usable(SSL_CTX_use_PrivateKey_file(context_.get(), key.c_str(), SSL_FILETYPE_PEM) == 1,
                "the certificate's private key (PEM, without a password)", key);
  }
  ERR_clear_error();
}

void TlsWire::Free::operator()(ssl_st* session) const noexcept { SSL_free(session); }

TlsWire::TlsWire(const TlsContext& context, std::unique_ptr<Wire> below, Deadline deadline)
    : below_(std::move(below)), session_(SSL_new(context.get())) {
  if (!session_) throw std::bad_alloc();
  received_ = BIO_new(BIO_s_mem());
  to_send_ = BIO_new(BIO_s_mem());
  SSL_set_bio(session_.get(), received_, to_send_);
  const std::string& name = context.certified_name();
  if (is_numeric_address(name)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session_.get()), name.c_str());
  } else {
    SSL_set1_host(session_.get(), name.c_str());
    SSL_set_tlsext_host_name(session_.get(), name.c_str());
  }
  try {
    drive([&] { return SSL_connect(session_.get()); }, deadline);
  } catch (const Failure& failure) {
    // A port without TLS takes the greeting for a command, and waits for the rest of it.
    if (failure.kind() != Failure::Kind::slow) throw;
    throw Failure(Failure::Kind::slow,
                  "the Redis server did not answer by TLS in time; where its port has no TLS, the address is redis://");
  }
}

template <class Step>
int TlsWire::drive(Step&& step, Deadline deadline) {
  for (;;) {
    ERR_clear_error();
    const int done = step();
    const int state = SSL_get_error(session_.get(), done);
    if (state == SSL_ERROR_NONE || state == SSL_ERROR_WANT_READ) send_encrypted(deadline);
    if (state == SSL_ERROR_NONE) return done;
    if (state == SSL_ERROR_ZERO_RETURN)
      throw Failure(Failure::Kind::unreachable, "the Redis server closed the connection");
    if (state != SSL_ERROR_WANT_READ) fail_handshake(session_.get());
    const std::string_view bytes = below_->receive(deadline);
    if (BIO_write(received_, bytes.data(), static_cast<int>(bytes.size())) != static_cast<int>(bytes.size()))
      throw std::bad_alloc();
  }
}

void TlsWire::send_encrypted(Deadline deadline) {
  char encrypted[std::size_t{16} << 10];
  for (int count = 0; (count = BIO_read(to_send_, encrypted, sizeof encrypted)) > 0;)
    below_->send({encrypted, static_cast<std::size_t>(count)}, deadline);
}

void TlsWire::send(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {  // a piece at a time, so that a large value is not held twice
    const std::string_view piece = bytes.substr(0, sizeof buffer_);
    drive([&] { return SSL_write(session_.get(), piece.data(), static_cast<int>(piece.size())); }, deadline);
    bytes.remove_prefix(piece.size());
  }
}

std::string_view TlsWire::receive(Deadline deadline) {
  const int count = drive([&] { return SSL_read(session_.get(), buffer_, sizeof buffer_); }, deadline);
  return {buffer_, static_cast<std::size_t>(count)};
}

}  // namespace kiln::remote::redis
