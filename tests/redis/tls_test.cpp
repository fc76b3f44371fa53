// TLS: whom the client trusts, and what is told where either side trusts the other not.
#include <fstream>

#include "kiln/error.hpp"
#include "redis/certificates.hpp"
#include "redis/support.hpp"

namespace kiln::testing {
namespace {

/// The files of an authority, a stranger's authority, a server of the names given, and a client.
struct Files {
  explicit Files(const std::string& names = "DNS:localhost,IP:127.0.0.1") {
    const Certificate authority(""), stranger("");
    authority.write(ca);
    stranger.write(strangers_ca);
    Certificate(names, &authority).write(certificate, key);
    Certificate("", &authority).write(clients_certificate, clients_key);
  }
  ServerFolder folder;
  const std::string ca = folder / "ca", strangers_ca = folder / "stranger", certificate = folder / "cert",
                    key = folder / "key", clients_certificate = folder / "client", clients_key = folder / "client-key";
};

struct TlsServer {
  TlsServer(const Files& files, const std::string& asks_clients)
      : server({"--tls-port", std::to_string(port), "--bind", "127.0.0.1", "--tls-cert-file", files.certificate,
                "--tls-key-file", files.key, "--tls-ca-cert-file", files.ca, "--tls-auth-clients", asks_clients}) {}
  [[nodiscard]] std::string address(const std::string& host = "127.0.0.1") const {
    return "rediss://" + host + ":" + std::to_string(port);
  }
  const int port = free_port();
  Server server;
};

Told told_by(const std::string& address, milliseconds patience = std::chrono::seconds(20)) {
  const auto store = remote::open_redis(address);
  return failure_of([&] { (void)store->get(place, within(patience)); });
}

bool lacks_tls() {
  if (server_has_tls()) return false;
  MESSAGE("skipped: this server was built without TLS");
  return true;
}

TEST_SUITE_BEGIN("server");

TEST_CASE("values go both ways over TLS") {
  if (lacks_tls()) return;
  const Files files;
  const TlsServer server(files, "no");
  const std::string largest(store::most_remote_bytes, 'x');
  for (const char* host : {"127.0.0.1", "localhost"}) {
    CAPTURE(host);
    const auto store = remote::open_redis(server.address(host) + "?ca=" + files.ca);
    store->put_code("ab", largest, within());
    CHECK(store->get_code("ab", within()) == largest);
    CHECK(store->put({place.space, host}, "value", std::nullopt, within()));
    CHECK(store->get({place.space, host}, within()) == "value");
  }
}

TEST_CASE("a server whose certificate does not hold is refused") {
  if (lacks_tls()) return;
  const Files files("DNS:cache.example");
  const TlsServer server(files, "no");
  for (const std::string& address :
       {server.address(), server.address() + "?ca=" + files.strangers_ca, server.address() + "?ca=" + files.ca,
        server.address("localhost") + "?ca=" + files.ca, server.address() + "?name=other.example&ca=" + files.ca}) {
    const Told told = told_by(address);
    CHECK(to_string(told.kind) == "refused");
    CHECK_MESSAGE(told.message.find("certificate is not trusted") != std::string::npos, told.message);
    CHECK(told.message.find("example") == std::string::npos);
    CHECK(told.message.find("127.0.0.1") == std::string::npos);
  }
  const auto store = remote::open_redis(server.address() + "?name=cache.example&ca=" + files.ca);
  CHECK_FALSE(store->get(place, within()).has_value());
}

TEST_CASE("a server that asks for a client's certificate gets it, or is told of") {
  if (lacks_tls()) return;
  const Files files;
  const TlsServer server(files, "yes");
  const std::string address = server.address() + "?ca=" + files.ca;
  const Told told = told_by(address);
  CHECK(to_string(told.kind) == "refused");
  CHECK_MESSAGE(told.message.find("cert=") != std::string::npos, told.message);
  const auto store = remote::open_redis(address + "&cert=" + files.clients_certificate + "&key=" + files.clients_key);
  CHECK(store->put(place, "value", std::nullopt, within()));
  CHECK(store->get(place, within()) == "value");
}

TEST_CASE("TLS at a port without, and none at a port with, is told") {
  if (lacks_tls()) return;
  const Files files;
  const TlsServer server(files, "no");
  CHECK(told_by("redis://127.0.0.1:" + std::to_string(server.port)).kind == Kind::unreachable);
  const int port = free_port();
  const Server plain({"--port", std::to_string(port), "--bind", "127.0.0.1"});
  // The server takes the greeting for the beginning of a command, unless a random byte of it ends a line.
  const Told told = told_by("rediss://127.0.0.1:" + std::to_string(port) + "?ca=" + files.ca, milliseconds(200));
  CHECK((told.kind == Kind::slow || told.kind == Kind::damaged));
  CHECK_MESSAGE(told.message.find("redis://") != std::string::npos, told.message);
}

TEST_CASE("a stopped server ends the greeting by its deadline") {
  if (lacks_tls()) return;
  const Files files;
  const TlsServer server(files, "no");
  server.server.signal(SIGSTOP);
  const auto store = remote::open_redis(server.address() + "?ca=" + files.ca);
  const auto began = Clock::now();
  CHECK(failure_of([&] { (void)store->get(place, within(milliseconds(60))); }).kind == Kind::slow);
  CHECK(Clock::now() - began < milliseconds(1060));
  server.server.signal(SIGCONT);
  CHECK_FALSE(store->get(place, within()).has_value());
}

TEST_SUITE_END();

TEST_CASE("files for TLS that cannot be used are told before any connection") {
  const Files files;
  std::ofstream(files.folder / "nonsense") << "nonsense";
  for (const char* options : {"ca=/nonexistent", "ca=%nonsense", "cert=%nonsense&key=%key",
                              "cert=%client&key=%nonsense", "cert=%client&key=%key"}) {
    std::string filled = options;
    for (std::size_t at = 0; (at = filled.find('%')) != std::string::npos;) filled.replace(at, 1, files.folder / "");
    CAPTURE(options);
    CHECK_THROWS_AS((void)remote::open_redis("rediss://host?" + filled), Error);
  }
}

}  // namespace
}  // namespace kiln::testing
