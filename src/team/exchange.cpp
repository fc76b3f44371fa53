#include "team/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kiln/error.hpp"

namespace kiln::team {
namespace {

constexpr std::size_t head_bytes = sizeof(std::uint64_t);
constexpr std::size_t first_bytes = Rendezvous::longest_bytes - head_bytes;  // of a text, behind its length

/// The piece of `text` that a round sends: the first begins with the text's length.
std::string piece_of(std::string_view text, std::size_t round) {
  if (round > 0) {
    const std::size_t sent = first_bytes + (round - 1) * Rendezvous::longest_bytes;
    return std::string(sent < text.size() ? text.substr(sent, Rendezvous::longest_bytes) : std::string_view());
  }
  const std::uint64_t length = text.size();
  std::string piece(reinterpret_cast<const char*>(&length), head_bytes);
  return piece.append(text.substr(0, first_bytes));
}

std::size_t rounds_for(std::uint64_t length) {
  return length <= first_bytes ? 1 : 1 + (length - first_bytes - 1) / Rendezvous::longest_bytes + 1;
}

}  // namespace

std::vector<std::string> gather_texts(Rendezvous& rendezvous, std::string_view own) {
  std::vector<std::string> all = rendezvous.all_gather(piece_of(own, 0));
  std::size_t rounds = 1;
  for (std::string& text : all) {
    std::uint64_t length = 0;
    std::memcpy(&length, text.data(), std::min(text.size(), head_bytes));
    rounds = std::max(rounds, rounds_for(length));
    text.erase(0, head_bytes);
  }
  for (std::size_t round = 1; round < rounds; ++round) {
    const std::vector<std::string> pieces = rendezvous.all_gather(piece_of(own, round));
    for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank] += pieces[rank];
  }
  return all;
}

std::string broadcast_text(Rendezvous& rendezvous, int root, std::string_view own) {
  const bool is_root = rendezvous.membership().rank == root;
  return gather_texts(rendezvous, is_root ? own : std::string_view())[static_cast<std::size_t>(root)];
}

std::vector<std::string> gather_on_all_ranks(Rendezvous& rendezvous, const char* what,
                                             const std::function<std::string()>& step) {
  constexpr char done = ' ';
  std::string outcome;  // `done` and the text returned, or the error's kind and text
  const auto failed = [&](ErrorKind kind, std::string_view why) {
    outcome = static_cast<char>('0' + static_cast<int>(kind));
    outcome += why.substr(0, Rendezvous::longest_bytes - 1);
  };
  try {
    outcome = done + step();
  } catch (const Error& error) {
    failed(error.kind(), error.what());
  } catch (const std::exception& error) {
    failed(ErrorKind::io, error.what());
  } catch (...) {  // of a caller's callback
    failed(ErrorKind::io, "an exception of no known type");
  }
  std::vector<std::string> outcomes = rendezvous.all_gather(outcome);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const char kind = outcomes[rank].front();
    outcomes[rank].erase(0, 1);
    if (kind != done)
      throw Error(
          static_cast<ErrorKind>(kind - '0'),
          fmt::format("team '{}': rank {} failed at {}: {}", rendezvous.membership().name, rank, what, outcomes[rank]));
  }
  return outcomes;
}

void on_all_ranks(Rendezvous& rendezvous, const char* what, const std::function<void()>& step) {
  gather_on_all_ranks(rendezvous, what, [&] {
    step();
    return std::string();
  });
}

}  // namespace kiln::team
