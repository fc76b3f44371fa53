#include "team/rendezvous.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kiln/error.hpp"
#include "team/meeting.hpp"

namespace kiln::team {

enum class Rendezvous::Kind : std::uint32_t { all_gather = 1, barrier = 2, exchange = 3, failure = 4 };

namespace {

/// Before each message.
struct Head {
  std::uint32_t kind = 0;
  std::uint32_t round = 0;
};
static_assert(Link::longest_message >= sizeof(Head) + Rendezvous::longest_bytes);

std::string with_head(Head head, std::string_view body) {
  std::string message(reinterpret_cast<const char*>(&head), sizeof head);
  return message.append(body);
}

std::string name_of(std::uint32_t kind, std::uint32_t round) {
  constexpr const char* names[] = {"an unknown call", "all_gather", "barrier", "exchange"};
  return fmt::format("{} (collective {})", names[kind < std::size(names) ? kind : 0], round);
}

}  // namespace

/// One collective under way.
struct Rendezvous::Round {
  Kind kind;
  std::uint32_t number;
  Clock::time_point end;
  std::vector<Message> got;  // by rank
  std::vector<int> awaited;
  std::vector<int> unsent{};  // whose streams have no room for all of this rank's message

  [[nodiscard]] std::string name() const { return name_of(static_cast<std::uint32_t>(kind), number); }
};

Rendezvous::Rendezvous(const Membership& membership, std::chrono::milliseconds timeout, const std::string& address)
    : membership_(membership),
      process_(getpid()),
      timeout_(timeout),
      meeting_(address.empty() ? meet(membership, end_after(timeout))
                               : meet_at(address, membership, end_after(timeout))) {}

Rendezvous::~Rendezvous() {
  if (getpid() == process_) leave();
}

void Rendezvous::leave() noexcept {
  for (const auto& each : meeting_.peers)
    if (each) each->link.leave();
}

std::vector<std::string> Rendezvous::all_gather(std::string_view own) {
  if (own.size() > longest_bytes)
    throw Error(ErrorKind::bad_input,
                fmt::format("team '{}': all_gather of {} bytes was asked for; {} at most are sent", membership_.name,
                            own.size(), longest_bytes));
  std::vector<std::string> all;
  for (Message& message : collect(Kind::all_gather, own, -1)) all.push_back(std::move(message.bytes));
  all[static_cast<std::size_t>(membership_.rank)] = own;
  return all;
}

void Rendezvous::barrier() { collect(Kind::barrier, {}, -1); }

std::vector<Descriptor> Rendezvous::exchange(int own) {
  std::vector<Message> messages = collect(Kind::exchange, {}, own);
  std::vector<Descriptor> all;
  for (int rank = 0; rank < membership_.world; ++rank) {
    Descriptor& descriptor = messages[static_cast<std::size_t>(rank)].descriptor;
    if (rank != membership_.rank && !descriptor) fail(fmt::format("rank {} sent no descriptor", rank));
    all.push_back(std::move(descriptor));
  }
  return all;
}

void Rendezvous::check() {
  if (!failure_.empty()) throw Error(ErrorKind::team_failed, failure_);
  for (int rank = 0; rank < membership_.world; ++rank) {
    if (rank == membership_.rank) continue;
    pollfd ends[] = {{peer(rank).link.descriptor(), POLLRDHUP, 0}, {peer(rank).watched.get(), POLLIN, 0}};
    if (poll(ends, std::size(ends), 0) > 0) attempt("check", [&] { hear_last_of(rank); });
  }
}

void Rendezvous::hear_last_of(int rank) {
  Message last;  // what it said before it left
  while (peer(rank).link.receive(last, Clock::now()) == Link::Outcome::done) {
    Head head;
    if (last.bytes.size() < sizeof head) continue;
    std::memcpy(&head, last.bytes.data(), sizeof head);
    if (head.kind == static_cast<std::uint32_t>(Kind::failure)) fail(last.bytes.substr(sizeof head));
  }
  fail_for(rank, {});
}

template <typename Work>
void Rendezvous::attempt(const std::string& doing, Work work) {
  try {
    work();
  } catch (const Error& error) {
    if (!failure_.empty()) throw;  // the others know
    fail(fmt::format("rank {} failed in {}: {}", membership_.rank, doing, error.what()));
  }
}

std::vector<Rendezvous::Watched> Rendezvous::watched() const {
  std::vector<Watched> all;
  const auto add = [&](int descriptor, short events) {
    all.push_back({Descriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)), events});
  };
  for (const auto& each : meeting_.peers) {
    if (each && each->watched) add(each->watched.get(), POLLIN);
    if (each && each->link.is_stream()) add(each->link.descriptor(), POLLRDHUP);
  }
  return all;
}

std::vector<Message> Rendezvous::collect(Kind kind, std::string_view own, int descriptor) {
  if (!failure_.empty()) throw Error(ErrorKind::team_failed, failure_);
  Round round{kind, ++rounds_, end_after(timeout_), {}, {}, {}};
  round.got.resize(meeting_.peers.size());
  for (int rank = 0; rank < membership_.world; ++rank)
    if (rank != membership_.rank) round.awaited.push_back(rank);
  attempt(round.name(), [&] {
    send_all(round, own, descriptor);
    receive_all(round);
  });
  return std::move(round.got);
}

void Rendezvous::send_all(Round& round, std::string_view own, int descriptor) {
  const std::string message = with_head({static_cast<std::uint32_t>(round.kind), round.number}, own);
  for (const int rank : round.awaited) {
    // A stream may have room for a part alone, and all ranks would wait for each other to read.
    const Link& link = peer(rank).link;
    // A rank that has closed its end may have said why, which receive_all() reads.
    if (link.send(message, descriptor, link.is_stream() ? Clock::now() : round.end) != Link::Outcome::late) continue;
    if (!link.is_stream()) fail_for_unsent(round, {rank});
    round.unsent.push_back(rank);
  }
}

void Rendezvous::fail_for_unsent(const Round& round, const std::vector<int>& ranks) {
  fail(fmt::format("{} took nothing off {} before {} within {} ms", ranks_text(ranks),
                   ranks.size() == 1 ? "its socket" : "their sockets", round.name(), timeout_.count()));
}

void Rendezvous::receive_all(Round& round) {
  while (!round.awaited.empty() || !round.unsent.empty()) go_on(round);
}

void Rendezvous::go_on(Round& round) {
  std::vector<pollfd> waiting;
  for (const int rank : round.awaited) {
    waiting.push_back({peer(rank).link.descriptor(), POLLIN, 0});
    waiting.push_back({peer(rank).watched.get(), POLLIN, 0});  // poll passes over one that is none
  }
  for (const int rank : round.unsent) waiting.push_back({peer(rank).link.descriptor(), POLLOUT, 0});
  const int ready = poll(waiting.data(), waiting.size(), milliseconds_until(round.end));
  if (ready < 0 && errno == EINTR) return;
  if (ready < 0) throw Error(ErrorKind::io, fmt::format("waiting for ranks: poll: {}", std::strerror(errno)));
  if (ready == 0 && Clock::now() < round.end) return;
  if (ready == 0 && round.awaited.empty()) fail_for_unsent(round, round.unsent);
  if (ready == 0)
    fail(fmt::format("{} did not come to {} within {} ms", ranks_text(round.awaited), round.name(), timeout_.count()));
  const std::vector<int> awaited = round.awaited, unsent = round.unsent;
  for (std::size_t i = 0; i < awaited.size(); ++i) {
    // One that has ended may have sent its message first.
    const bool has_ended = waiting[2 * i + 1].revents != 0;
    if (waiting[2 * i].revents != 0 || has_ended) take(round, awaited[i], has_ended);
  }
  for (std::size_t i = 0; i < unsent.size(); ++i)
    if (waiting[2 * awaited.size() + i].revents != 0 && peer(unsent[i]).link.flush(Clock::now()) != Link::Outcome::late)
      std::erase(round.unsent, unsent[i]);
}

void Rendezvous::take(Round& round, int rank, bool has_ended) {
  Message message;
  const Link::Outcome state = peer(rank).link.receive(message, Clock::now());
  if (state == Link::Outcome::late && !has_ended) return;  // a stream's message may come in parts
  if (state != Link::Outcome::done) fail_for(rank, round.name());
  Head head;
  if (message.bytes.size() < sizeof head) fail(fmt::format("rank {} sent what is no message of a team", rank));
  std::memcpy(&head, message.bytes.data(), sizeof head);
  message.bytes.erase(0, sizeof head);
  if (head.kind == static_cast<std::uint32_t>(Kind::failure)) fail(message.bytes);
  if (head.kind != static_cast<std::uint32_t>(round.kind) || head.round != round.number)
    fail(fmt::format("rank {} called {} where rank {} called {}; all ranks call the same in the same order", rank,
                     name_of(head.kind, head.round), membership_.rank, round.name()));
  round.got[static_cast<std::size_t>(rank)] = std::move(message);
  std::erase(round.awaited, rank);
}

void Rendezvous::fail_for(int rank, const std::string& doing) {
  const int process = peer(rank).process;
  fail(fmt::format("rank {}{} has ended or left the team{}", rank,
                   process > 0 ? fmt::format(" (process {})", process) : "", doing.empty() ? "" : " before " + doing));
}

void Rendezvous::fail(const std::string& what) {
  const std::string prefix = fmt::format("team '{}': ", membership_.name);
  failure_ = what.starts_with(prefix) ? what : prefix + what;  // another rank's words are passed on as they are
  const std::string message = with_head({static_cast<std::uint32_t>(Kind::failure), rounds_}, failure_);
  for (const auto& each : meeting_.peers) {
    try {
      if (each) static_cast<void>(each->link.send(message, -1, Clock::now()));
    } catch (const Error&) {  // learns it when this rank leaves
    }
  }
  leave();
  meeting_ = {};
  throw Error(ErrorKind::team_failed, failure_);
}

}  // namespace kiln::team
