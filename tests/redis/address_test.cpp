// Addresses of Redis servers, and what the environment adds.
#include "remote/redis/address.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "kiln/error.hpp"

namespace kiln::remote::redis {
namespace {

TEST_CASE("an address gives host, port, login and database") {
  const Address least = parse_address("redis://cache");
  CHECK(least.host == "cache");
  CHECK(least.port == 6379);
  CHECK(least.database == 0);
  CHECK_FALSE(least.tls);
  CHECK(least.user.empty());
  CHECK(least.password.empty());

  const Address most = parse_address("rediss://kiln:se%63ret%40@cache.example:7000/3?ca=/etc/ca%20x.pem&name=other");
  CHECK(most.tls);
  CHECK(most.user == "kiln");
  CHECK(most.password == "secret@");
  CHECK(most.host == "cache.example");
  CHECK(most.port == 7000);
  CHECK(most.database == 3);
  CHECK(most.ca_file == "/etc/ca x.pem");
  CHECK(most.certified_name == "other");

  CHECK(parse_address("redis://:a@b@host").password == "a@b");
  CHECK(parse_address("redis://[::1]:7/2").host == "::1");
  CHECK(parse_address("redis://[::1]:7/2").port == 7);
  CHECK(parse_address("redis://[fe80::1]").host == "fe80::1");
}

TEST_CASE("an address gives a Unix socket, which may have an @ in its path") {
  const Address address = parse_address("unix:///run/redis@1/socket?db=2");
  CHECK(address.path == "/run/redis@1/socket");
  CHECK(address.host.empty());
  CHECK(address.database == 2);
  const Address with_login = parse_address("unix://kiln:secret@/run/socket");
  CHECK(with_login.path == "/run/socket");
  CHECK(with_login.user == "kiln");
  CHECK(with_login.password == "secret");
}

TEST_CASE("a wrong address is refused without a word of it") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"redis://", "names no host"},
      {"redis://hunter2:secret@", "names no host"},
      {"redis://hunter2:secret@:6379", "names no host"},
      {"redis://hunter2:secret@host:0", "port that is no number"},
      {"redis://hunter2:secret@host:65536", "port that is no number"},
      {"redis://hunter2:secret@host:6379x", "port that is no number"},
      {"redis://hunter2:secret@[::1", "[ without its ]"},
      {"redis://hunter2:secret@[::1]x", "between its ] and its port"},
      {"redis://hunter2:secret@host/one", "database that is no number"},
      {"redis://hunter2:secret@host/-1", "database that is no number"},
      {"redis://hunter2:secret@host/1?db=2", "database twice"},
      {"redis://hunter2:secret@host?password=secret", "none of db, ca, cert, key and name"},
      {"redis://hunter2:secret%4@host", "hexadecimal"},
      {"redis://hunter2:secret%zz@host", "hexadecimal"},
      {"redis://hunter2:secret%00@host", "byte of zero"},
      {"rediss://hunter2:secret@host?cert=/secret.pem", "certificate without its key"},
      {"unix://secret/socket", "no full path"},
      {"unix:///" + std::string(108, 's'), "more than 107 bytes"},
  };
  for (const auto& each : cases) {
    CAPTURE(each.first);
    try {
      (void)parse_address(each.first);
      FAIL_CHECK("it was taken");
    } catch (const Error& error) {
      const std::string message = error.what();
      CHECK(error.kind() == ErrorKind::bad_input);
      CHECK_MESSAGE(message.find(each.second) != std::string::npos, message);
      CHECK(message.find("secret") == std::string::npos);
      CHECK(message.find("hunter2") == std::string::npos);
    }
  }
}

TEST_CASE("the environment gives what the address lacks, and no more") {
  const std::pair<const char*, const char*> all[] = {
      {"KILN_REDIS_USER", "eve"},       {"KILN_REDIS_PASSWORD", "from the environment"},
      {"KILN_REDIS_DB", "5"},           {"KILN_REDIS_CA", "/ca"},
      {"KILN_REDIS_CERT", "/cert"},     {"KILN_REDIS_KEY", "/key"},
      {"KILN_REDIS_NAME", "certified"},
  };
  for (const auto& [name, value] : all) setenv(name, value, 1);
  const Address bare = parse_address("rediss://host"), full = parse_address("rediss://:mine@host/1?ca=/mine");
  setenv("KILN_REDIS_DB", "five", 1);
  CHECK_THROWS_WITH_AS((void)parse_address("redis://host"),
                       "KILN_REDIS_DB, the database of the Redis server, is no number", Error);
  for (const auto& [name, value] : all) unsetenv(name);
  CHECK(bare.user == "eve");
  CHECK(bare.password == "from the environment");
  CHECK(bare.database == 5);
  CHECK(bare.ca_file == "/ca");
  CHECK(bare.certificate_file == "/cert");
  CHECK(bare.key_file == "/key");
  CHECK(bare.certified_name == "certified");
  CHECK(full.user.empty());
  CHECK(full.password == "mine");
  CHECK(full.database == 1);
  CHECK(full.ca_file == "/mine");
}

}  // namespace
}  // namespace kiln::remote::redis
