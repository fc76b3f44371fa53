#include "remote/redis/address.hpp"

#include <fmt/format.h>
#include <sys/un.h>

#include <array>
#include <charconv>
#include <optional>

#include "kiln/error.hpp"
#include "manifest/environment.hpp"

namespace kiln::remote::redis {
namespace {

constexpr std::string_view plain_scheme = "redis://", tls_scheme = "rediss://", socket_scheme = "unix://";
constexpr int last_port = 65'535, last_database = 1'000'000;

/// The address may hold a password, so no message quotes a part of it.
[[noreturn]] void refuse_address(std::string_view why) {
  throw Error(ErrorKind::bad_input,
              fmt::format("the address of the Redis server {}; expected redis://[USER[:PASSWORD]@]HOST[:PORT][/DB], "
                          "rediss:// likewise, or unix:///PATH[?db=N]",
                          why));
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string decode(std::string_view text) {
  std::string decoded;
  for (std::size_t at = 0; at < text.size(); ++at) {
    char byte = text[at];
    if (byte == '%') {
      const int high = at + 2 < text.size() ? digit_of(text[at + 1]) : -1;
      const int low = at + 2 < text.size() ? digit_of(text[at + 2]) : -1;
      if (high < 0 || low < 0) refuse_address("has a % that two hexadecimal digits do not follow (% itself is %25)");
      byte = static_cast<char>(16 * high + low);
      at += 2;
    }
    if (byte == '\0') refuse_address("has a byte of zero");
    decoded += byte;
  }
  return decoded;
}

std::optional<int> number_of(std::string_view text, int last) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > last) return std::nullopt;
  return number;
}

/// Returns what is before the separator, and leaves what is behind it; all and nothing where there is none.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view taken = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return taken;
}

struct TextOption {
  std::string_view name;
  const char* variable;
  std::string Address::*value;
};
constexpr std::array<TextOption, 4> text_options{{
    {"ca", "KILN_REDIS_CA", &Address::ca_file},
    {"cert", "KILN_REDIS_CERT", &Address::certificate_file},
    {"key", "KILN_REDIS_KEY", &Address::key_file},
    {"name", "KILN_REDIS_NAME", &Address::certified_name},
}};

void set_database(std::string_view text, std::optional<int>& database) {
  if (database) refuse_address("names its database twice");
  database = number_of(text, last_database);
  if (!database) refuse_address("names a database that is no number");
}

void set_option(std::string_view name, std::string_view value, Address& address, std::optional<int>& database) {
  if (name == "db") return set_database(value, database);
  for (const TextOption& option : text_options)
    if (option.name == name) {
      address.*option.value = decode(value);
      return;
    }
  refuse_address("has an option that is none of db, ca, cert, key and name");
}

void set_login(std::string_view login, Address& address) {
  address.user = decode(take_until(login, ':'));
  address.password = decode(login);
}

void set_host(std::string_view text, Address& address) {
  std::string_view host;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) refuse_address("has a [ without its ]");
    host = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    if (!text.empty() && text.front() != ':') refuse_address("has something between its ] and its port");
    if (!text.empty()) text.remove_prefix(1);
  } else {
    host = take_until(text, ':');
  }
  if (host.empty()) refuse_address("names no host");
  address.host = decode(host);
  if (text.empty()) return;
  const std::optional<int> port = number_of(text, last_port);
  if (!port || *port == 0) refuse_address("has a port that is no number from 1 to 65535");
  address.port = *port;
}

void set_path(std::string_view text, Address& address) {
  if (!text.starts_with('/')) refuse_address("names no full path of a socket");
  address.path = decode(text);
  if (address.path.size() >= sizeof(sockaddr_un::sun_path))
    refuse_address(fmt::format("names a socket by more than {} bytes", sizeof(sockaddr_un::sun_path) - 1));
}

void add_environment(Address& address, std::optional<int>& database) {
  if (address.user.empty() && address.password.empty()) address.user = manifest::environment("KILN_REDIS_USER");
  if (address.password.empty()) address.password = manifest::environment("KILN_REDIS_PASSWORD");
  for (const TextOption& option : text_options)
    if ((address.*option.value).empty()) address.*option.value = manifest::environment(option.variable);
  if (const std::string text = manifest::environment("KILN_REDIS_DB"); !database && !text.empty()) {
    database = number_of(text, last_database);
    if (!database) throw Error(ErrorKind::bad_input, "KILN_REDIS_DB, the database of the Redis server, is no number");
  }
}

}  // namespace

Address parse_address(std::string_view text) {
  Address address;
  std::optional<int> database;
  const bool is_socket = text.starts_with(socket_scheme);
  address.tls = text.starts_with(tls_scheme);
  text.remove_prefix((is_socket ? socket_scheme : address.tls ? tls_scheme : plain_scheme).size());

  std::string_view place = take_until(text, '?');
  // A password may hold an @ that nobody encoded: the last one ends it. A path without login may hold one too.
  if (const std::size_t end = place.rfind('@'); end != std::string_view::npos && !(is_socket && place.front() == '/')) {
    set_login(place.substr(0, end), address);
    place.remove_prefix(end + 1);
  }
  if (is_socket) {
    set_path(place, address);
  } else {
    set_host(take_until(place, '/'), address);
    if (!place.empty()) set_database(place, database);
  }
  while (!text.empty()) {
    std::string_view value = take_until(text, '&');
    const std::string_view name = take_until(value, '=');
    set_option(name, value, address, database);
  }
  add_environment(address, database);
  if (address.certificate_file.empty() != address.key_file.empty())
    refuse_address("names a certificate without its key, or a key without its certificate");
  address.database = database.value_or(0);
  return address;
}

}  // namespace kiln::remote::redis
