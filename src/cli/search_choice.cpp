#include "cli/search_choice.hpp"

#include <cmath>

#include "cli/commands.hpp"

namespace kiln::cli {

void declare_search(CLI::App& command, SearchChoice& choice) {
  command
      .add_option(
          "--strategy", choice.strategy,
          "racing: the likeliest candidates first, few samples for those that cannot win; exhaustive: every candidate")
      ->check(CLI::IsMember({"racing", "exhaustive"}).description(""))
      ->type_name("NAME");
  command.add_option("--trials", choice.trials, "The most candidates a bucket (racing; no limit by default)")
      ->check(CLI::Validator(CLI::Range(std::int64_t{1}, std::int64_t{1000000})).description(""))
      ->type_name("N");
  command
      .add_option(
          "--seconds", choice.seconds,
          "Time a bucket, after which no candidate is begun and the best so far are compared (no limit by default)")
      ->check(number_from(0.001, 1e6))
      ->type_name("SECONDS");
  command.add_option("--seed", choice.seed, "The seed of racing's draws")->type_name("N");
}

SearchSettings search_settings(const SearchChoice& choice) {
  SearchSettings settings;
  settings.strategy = choice.strategy == "exhaustive" ? Strategy::exhaustive : Strategy::racing;
  settings.trials = choice.trials;
  settings.time_limit = std::chrono::milliseconds(std::llround(std::ceil(choice.seconds * 1000)));
  settings.seed = choice.seed;
  return settings;
}

}  // namespace kiln::cli
