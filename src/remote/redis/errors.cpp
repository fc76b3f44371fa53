#include "remote/redis/errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace kiln::remote::redis {
namespace {

using Kind = store::RemoteFailure::Kind;

struct Meaning {
  std::string_view words;  // in the reply
  Kind kind;
  std::string_view sentence;
};
/// By the word that a reply begins with, or that the error of a script has in it.
constexpr std::array kinds{
    Meaning{"NOAUTH", Kind::refused,
            "asks for a password: set KILN_REDIS_PASSWORD, and KILN_REDIS_USER where users have names"},
    Meaning{"WRONGPASS", Kind::refused, "does not know this user with this password"},
    Meaning{"NOPERM", Kind::refused, "does not permit this user the command or the keys: permit the keys kiln:*"},
    Meaning{"DENIED", Kind::refused, "is in protected mode, and refuses other hosts until it has a password"},
    Meaning{"READONLY", Kind::read_only, "is a replica that cannot be written: name the primary"},
    Meaning{"NOREPLICAS", Kind::read_only, "takes no writes while it has too few replicas"},
    Meaning{"MISCONF", Kind::read_only, "takes no writes, because it cannot save them to its disk"},
    Meaning{"OOM", Kind::full, "has no memory left: raise its maxmemory or choose an eviction policy"},
    Meaning{"LOADING", Kind::unavailable, "is still loading its data"},
    Meaning{"MASTERDOWN", Kind::unavailable, "is a replica that has lost its primary"},
    Meaning{"BUSY", Kind::unavailable, "is busy with a script"},
    Meaning{"TRYAGAIN", Kind::unavailable, "moves its data: a cluster is not supported, name a single server"},
    Meaning{"CLUSTERDOWN", Kind::unavailable,
            "is of a cluster that is down: a cluster is not supported, name a single server"},
    Meaning{"MOVED", Kind::unavailable,
            "has these keys on another server: a cluster is not supported, name a single server"},
    Meaning{"ASK", Kind::unavailable,
            "has these keys on another server: a cluster is not supported, name a single server"},
    Meaning{"CROSSSLOT", Kind::unavailable, "is of a cluster, which is not supported: name a single server"},
    Meaning{"WRONGTYPE", Kind::damaged, "has a key of Kiln's name that holds something else"},
};
/// Replies that begin with ERR, by a part of their text.
constexpr std::array texts{
    Meaning{"max number of clients", Kind::unavailable, "takes no more connections: raise its maxclients"},
    Meaning{"without any password", Kind::refused,
            "has no password, and this address or KILN_REDIS_PASSWORD gives one"},
    Meaning{"no password is set", Kind::refused, "has no password, and this address or KILN_REDIS_PASSWORD gives one"},
    Meaning{"invalid password", Kind::refused, "does not know this password"},
    Meaning{"DB index", Kind::refused, "has no database of this number"},
    Meaning{"SELECT is not allowed", Kind::refused, "is of a cluster, which has the database 0 alone"},
    Meaning{"unknown command", Kind::refused, "does not know a command that Kiln needs"},
};

std::string_view first_word(std::string_view reply) { return reply.substr(0, reply.find(' ')); }

/// Redis 6 reports an error within a script as "ERR Error running script ...: -OOM command not allowed ...".
bool has_within(std::string_view reply, std::string_view word) {
  return reply.find(fmt::format("-{} ", word)) != std::string_view::npos;
}

template <std::size_t count, class Predicate>
const Meaning* find_in(const std::array<Meaning, count>& meanings, Predicate&& is_meant) {
  const auto found = std::find_if(meanings.begin(), meanings.end(), is_meant);
  return found != meanings.end() ? &*found : nullptr;
}

const Meaning* meaning_of(std::string_view reply) {
  if (const auto* found = find_in(kinds, [&](const Meaning& each) { return each.words == first_word(reply); }))
    return found;
  if (const auto* found = find_in(kinds, [&](const Meaning& each) { return has_within(reply, each.words); }))
    return found;
  return find_in(texts, [&](const Meaning& each) { return reply.find(each.words) != std::string_view::npos; });
}

/// Whether a word is one that errors begin with, and so no text that a server makes up.
bool is_kind(std::string_view word) {
  return !word.empty() && word.size() <= 16 &&
         std::all_of(word.begin(), word.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

}  // namespace

store::RemoteFailure failure_of(std::string_view reply) {
  const std::string_view word = is_kind(first_word(reply)) ? first_word(reply) : "no known error";
  if (const Meaning* found = meaning_of(reply))
    return {found->kind, fmt::format("the Redis server {} ({})", found->sentence, word)};
  return {Kind::refused, fmt::format("the Redis server refused a command ({})", word)};
}

bool refuses_scripts(std::string_view reply) noexcept {
  return first_word(reply) == "NOPERM" || reply.find("unknown command") != std::string_view::npos;
}

}  // namespace kiln::remote::redis
