#include "team/on_all_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"

namespace kiln::team {

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
          fmt::format("Team '{}': rank {} failed at {}: {}", rendezvous.membership().name, rank, what, outcomes[rank]));
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
