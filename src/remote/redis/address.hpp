// Where a Redis server is and how to be let in, from an address and the environment.
//
//   address  := ("redis" | "rediss") "://" [login "@"] host [":" port] ["/" db] [options]
//             | "unix://" [login "@"] path [options]
//   login    := [user] [":" password]
//   options  := "?" option {"&" option}
//   option   := ("db" | "ca" | "cert" | "key" | "name") "=" value
//
// login, path and values may have bytes as %XX.
#pragma once

#include <string>
#include <string_view>

namespace kiln::remote::redis {

struct Address {
  std::string host;  // a name or number without brackets; empty: `path` is that of a Unix socket
  std::string path;
  int port = 6379;
  bool tls = false;
  std::string user, password;  // both empty: no login
  int database = 0;
  std::string ca_file;           // empty: the system's authorities
  std::string certificate_file;  // the client's own, and its key; empty: none
  std::string key_file;
  std::string certified_name;  // what the server's certificate must name; empty: host
};

/// What the address lacks is taken from KILN_REDIS_USER, KILN_REDIS_PASSWORD, KILN_REDIS_DB, KILN_REDIS_CA,
/// KILN_REDIS_CERT, KILN_REDIS_KEY and KILN_REDIS_NAME. Throws Error(bad_input) with a message that quotes neither.
/// REQUIRES: is_redis_address(address).
Address parse_address(std::string_view address);

}  // namespace kiln::remote::redis
