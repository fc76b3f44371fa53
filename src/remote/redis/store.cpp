#include "remote/redis/store.hpp"

#include <fmt/format.h>

#include <utility>

#include "remote/redis/errors.hpp"

namespace kiln::remote::redis {
namespace {

using store::most_remote_bytes;
using store::RemotePlace;
using Replies = std::vector<Reply>;

constexpr ReplyLimits short_answer{4096, 16};
constexpr ReplyLimits one_value{most_remote_bytes + 64, 16};
constexpr ReplyLimits many_values{std::size_t{64} << 20, store::most_remote_values};

/// A value that is too large to be read counts as none. KEYS: hash, set of spaces. ARGV: field, value, space, whether
/// there is a value to be replaced, that value, largest size.
constexpr std::string_view put_script = R"(
local now = redis.call('HGET', KEYS[1], ARGV[1])
if now == ARGV[2] then return 1 end
if now and #now > tonumber(ARGV[6]) then now = false end
if ARGV[4] == '1' then
  if now ~= ARGV[5] then return 0 end
elseif now then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('SADD', KEYS[2], ARGV[3])
return 1)";
constexpr std::string_view renew_script = R"(
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2]))";
constexpr std::string_view release_script = R"(
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1]))";

constexpr std::string_view spaces_key = "kiln:spaces";
std::string records_key(std::string_view space) { return fmt::format("kiln:records:{}", space); }
std::string code_key(std::string_view key) { return fmt::format("kiln:code:{}", key); }
std::string claim_key(const RemotePlace& place) { return fmt::format("kiln:claim:{}|{}", place.space, place.key); }
std::string milliseconds_of(std::chrono::seconds term) {
  return std::to_string(std::chrono::milliseconds(term).count());
}

[[noreturn]] void fail_answer() {
  throw Failure(Failure::Kind::damaged, "the Redis server answered with something that was not asked for");
}

/// Returns the reply. Throws what an error reply is.
const Reply& checked(const Reply& reply) {
  if (reply.kind == Reply::Kind::error) throw failure_of(reply.text);
  return reply;
}

std::optional<std::string> text_or_nothing(Reply reply) {
  if (checked(reply).kind == Reply::Kind::nothing) return std::nullopt;
  if (reply.kind != Reply::Kind::text) fail_answer();
  return std::move(reply.text);
}

long long number_in(const Reply& reply) {
  if (checked(reply).kind != Reply::Kind::number) fail_answer();
  return reply.number;
}

std::vector<std::string> texts_in(Reply reply) {
  if (checked(reply).kind != Reply::Kind::list) fail_answer();
  std::vector<std::string> texts;
  for (Reply& item : reply.items)
    if (auto text = text_or_nothing(std::move(item))) texts.push_back(std::move(*text));
  return texts;
}

void refuse_large(std::string_view value) {
  if (value.size() > most_remote_bytes)
    throw Failure(Failure::Kind::refused,
                  fmt::format("a value has {} bytes, the shared store takes {}", value.size(), most_remote_bytes));
}

/// What stands at a watched key.
enum class Seen : std::uint8_t { wanted, expected, other };

/// Runs the commands as one transaction. Returns false where a watched key has changed.
bool commit(Connection& connection, const std::vector<std::string>& changes, Deadline deadline) {
  std::vector<std::string> commands{command_of({"MULTI"})};
  commands.insert(commands.end(), changes.begin(), changes.end());
  commands.push_back(command_of({"EXEC"}));
  const Replies replies = connection.ask(commands, short_answer, deadline);
  for (const Reply& reply : replies) checked(reply);
  for (const Reply& item : replies.back().items) checked(item);
  return replies.back().kind == Reply::Kind::list;
}

/// Makes the changes if `look` sees what is expected; looks again where somebody writes the key meanwhile. Returns
/// whether the key has what is wanted.
template <class Look>
bool change_watched(Connection& connection, const std::string& key, Look&& look,
                    const std::vector<std::string>& changes, Deadline deadline) {
  connection.spoil();  // until EXEC or UNWATCH the server keeps a state of it
  for (;;) {
    checked(connection.ask({command_of({"WATCH", key})}, short_answer, deadline).front());
    const Seen seen = look();
    if (seen == Seen::expected && !commit(connection, changes, deadline)) continue;
    if (seen != Seen::expected) checked(connection.ask({command_of({"UNWATCH"})}, short_answer, deadline).front());
    connection.mend();
    return seen != Seen::other;
  }
}

bool put_by_watching(Connection& connection, const RemotePlace& place, std::string_view value,
                     const std::optional<std::string>& replaces, Deadline deadline) {
  const std::string key = records_key(place.space);
  const auto look = [&] {
    std::optional<std::string> now;
    const std::string length = command_of({"HSTRLEN", key, place.key}), get = command_of({"HGET", key, place.key});
    if (number_in(connection.ask({length}, short_answer, deadline).front()) <= std::int64_t{most_remote_bytes})
      now = text_or_nothing(std::move(connection.ask({get}, one_value, deadline).front()));
    return now == value ? Seen::wanted : now == replaces ? Seen::expected : Seen::other;
  };
  return change_watched(connection, key, look,
                        {command_of({"HSET", key, place.key, value}), command_of({"SADD", spaces_key, place.space})},
                        deadline);
}

}  // namespace

Store::Store(Address address) : address_(std::move(address)) {
  if (address_.tls) tls_.emplace(address_);
}

template <class Work>
auto Store::with_connection(Deadline deadline, Work&& work) {
  if (std::exchange(owner_, getpid()) != getpid()) connection_.reset();  // a child of fork has its parent's
  const bool was_kept = connection_ != nullptr;
  try {
    return attempt(deadline, work);
  } catch (const Failure& failure) {
    if (!was_kept || failure.kind() != Failure::Kind::unreachable) throw;
  }
  return attempt(deadline, work);
}

template <class Work>
auto Store::attempt(Deadline deadline, Work&& work) {
  struct DropUnusable {
    std::unique_ptr<Connection>& connection;
    ~DropUnusable() {
      if (connection && !connection->is_usable()) connection.reset();
    }
  } const drop_unusable{connection_};
  try {
    if (!connection_) connection_ = std::make_unique<Connection>(address_, tls_ ? &*tls_ : nullptr, deadline);
    return work(*connection_);
  } catch (const ReplyTooLarge& large) {
    throw Failure(Failure::Kind::damaged, large.what());
  } catch (const Failure& failure) {
    // A primary that has become a replica has a successor, to which the host's name may lead.
    if (failure.kind() == Failure::Kind::read_only) connection_.reset();
    throw;
  }
}

std::optional<std::string> Store::get(const Place& place, Deadline deadline) {
  return value_at(command_of({"HGET", records_key(place.space), place.key}), deadline);
}

std::optional<std::string> Store::get_code(std::string_view key, Deadline deadline) {
  return value_at(command_of({"GET", code_key(key)}), deadline);
}

std::vector<std::string> Store::list(std::string_view space, Deadline deadline) {
  return texts_of(command_of({"HVALS", records_key(space)}), deadline);
}

std::vector<std::string> Store::spaces(Deadline deadline) {
  return texts_of(command_of({"SMEMBERS", spaces_key}), deadline);
}

std::optional<std::string> Store::value_at(const std::string& command, Deadline deadline) {
  return with_connection(deadline, [&](Connection& connection) -> std::optional<std::string> {
    try {
      auto value = text_or_nothing(std::move(connection.ask({command}, one_value, deadline).front()));
      return value && value->size() <= most_remote_bytes ? std::move(value) : std::nullopt;
    } catch (const ReplyTooLarge&) {
      connection.spoil();
      return std::nullopt;
    }
  });
}

std::vector<std::string> Store::texts_of(const std::string& command, Deadline deadline) {
  return with_connection(deadline, [&](Connection& connection) {
    return texts_in(std::move(connection.ask({command}, many_values, deadline).front()));
  });
}

std::optional<bool> Store::run(Connection& connection, const std::string& script, Deadline deadline) {
  if (!may_run_scripts_) return std::nullopt;
  const Reply reply = std::move(connection.ask({script}, short_answer, deadline).front());
  if (reply.kind == Reply::Kind::error && refuses_scripts(reply.text)) {
    may_run_scripts_ = false;
    return std::nullopt;
  }
  return number_in(reply) == 1;
}

bool Store::put(const Place& place, std::string_view value, const std::optional<std::string>& replaces,
                Deadline deadline) {
  refuse_large(value);
  const std::string key = records_key(place.space);
  return with_connection(deadline, [&](Connection& connection) {
    const auto stored =
        run(connection,
            command_of({"EVAL", put_script, "2", key, spaces_key, place.key, value, place.space, replaces ? "1" : "0",
                        replaces ? *replaces : std::string(), std::to_string(most_remote_bytes)}),
            deadline);
    return stored ? *stored : put_by_watching(connection, place, value, replaces, deadline);
  });
}

void Store::put_code(std::string_view key, std::string_view value, Deadline deadline) {
  refuse_large(value);
  const std::string command = command_of({"SET", code_key(key), value});
  with_connection(deadline,
                  [&](Connection& connection) { checked(connection.ask({command}, short_answer, deadline).front()); });
}

bool Store::claim(const Place& place, std::string_view token, std::chrono::seconds term, Deadline deadline) {
  const std::string key = claim_key(place);
  return with_connection(deadline, [&](Connection& connection) {
    // Who holds it is asked too: a claim of this token may stand from an attempt of which no answer came.
    const Replies replies =
        connection.ask({command_of({"SET", key, token, "NX", "PX", milliseconds_of(term)}), command_of({"GET", key})},
                       short_answer, deadline);
    checked(replies.front());
    return text_or_nothing(replies.back()) == token;
  });
}

bool Store::renew(const Place& place, std::string_view token, std::chrono::seconds term, Deadline deadline) {
  const std::string key = claim_key(place), time = milliseconds_of(term);
  return change_claim(key, token, command_of({"EVAL", renew_script, "1", key, token, time}),
                      command_of({"PEXPIRE", key, time}), deadline);
}

void Store::release(const Place& place, std::string_view token, Deadline deadline) {
  const std::string key = claim_key(place);
  change_claim(key, token, command_of({"EVAL", release_script, "1", key, token}), command_of({"DEL", key}), deadline);
}

bool Store::change_claim(const std::string& key, std::string_view token, const std::string& script,
                         const std::string& change, Deadline deadline) {
  return with_connection(deadline, [&](Connection& connection) {
    if (const auto changed = run(connection, script, deadline)) return *changed;
    const auto look = [&] {
      const Reply reply = std::move(connection.ask({command_of({"GET", key})}, short_answer, deadline).front());
      return text_or_nothing(reply) == token ? Seen::expected : Seen::other;
    };
    return change_watched(connection, key, look, {change}, deadline);
  });
}

}  // namespace kiln::remote::redis
