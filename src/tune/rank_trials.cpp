#include "tune/rank_trials.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "kiln/error.hpp"
#include "process/message.hpp"
#include "team/exchange.hpp"
#include "tune/worker_messages.hpp"

namespace kiln::tune {
namespace {

using Json = nlohmann::json;
using process::Channel;

constexpr std::chrono::milliseconds to_meet{60'000};  // for workers to find each other

bool is_failure(const Json& answer) { return answer.contains("error") || answer.contains("lost"); }

ErrorKind kind_of(const Json& error) { return static_cast<ErrorKind>(error.at("error").at("kind").get<int>()); }

std::string text_of(const Json& failure) {
  return failure.contains("lost") ? failure.at("lost").get<std::string>()
                                  : failure.at("error").at("message").get<std::string>();
}

/// Whether {"why"} has a reason.
bool has_reason(const Json& failure) { return !failure.at("why").get_ref<const std::string&>().empty(); }

/// How much a failure says: a rank that another one left alone says least. Memory that lacks for one candidate must not
/// hide that the candidate hangs or breaks the context of another rank.
enum class Weight : std::uint8_t { none, left_alone, killed, lacks_memory_in_trial, late, own, lacks_memory };

Weight weight_of(const Json& answer, bool is_trial) {
  if (answer.contains("lost")) {
    if (answer.at("killed").get<bool>()) return Weight::killed;
    return answer.at("late").get<bool>() ? Weight::late : Weight::own;
  }
  if (!answer.contains("error")) return Weight::none;
  switch (kind_of(answer)) {
    case ErrorKind::out_of_memory: return is_trial ? Weight::lacks_memory_in_trial : Weight::lacks_memory;
    case ErrorKind::team_failed: return Weight::left_alone;
    default: return Weight::own;
  }
}

/// Throws a std::exception where a worker's answer is none to the message.
void require_readable(const Json& message, const Json& answer) {
  try {
    process::rethrow(answer);
  } catch (const Error&) {
    return;
  }
  if (answer.contains("lost")) throw std::runtime_error("it is what an owner says of a worker");
  if (message.contains("files")) {
    prepared_ns_from_json(answer);
  } else if (message.contains("admit")) {
    admission_from_json(answer);
  } else if (message.contains("sample")) {
    samples_from_json(answer, message.at("sample").size());
  }
}

std::string ranks_text(const std::vector<std::size_t>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

std::string of_rank(std::size_t rank, const std::string& text) { return fmt::format("on rank {}: {}", rank, text); }

RankTrials::RankTrials(team::Member& team, int device, RankTrialSettings settings)
    : team_(team), device_(device), settings_(std::move(settings)) {
  if (settings_.program.empty()) why_never_ = settings_.why_none;
  if (team_.link() == manifest::TeamLink::network)
    why_never_ = "the ranks met at an address, where workers have none to meet at";
}

RankTrials::~RankTrials() = default;

RankTrials::Answers RankTrials::answer(const Json& message) {
  if (message.contains("workers")) {
    const std::string name = message.at("workers");
    return name.empty() ? run_here(message.at("why"), ErrorKind::out_of_memory) : seek_workers(name);
  }
  const bool is_remote = worker_.has_value();
  Answers answers;
  answers.all = gather(is_remote ? asked(message) : answered_here(message));
  if (is_remote) judge(answers, message.contains("admit") || message.contains("sample"));
  return answers;
}

void RankTrials::end_tune() {
  here_.reset();
  why_not_now_ = {};
  if (worker_ && is_failure(asked({{"forget", true}}))) stop();
}

void RankTrials::abandon() {
  here_.reset();
  why_not_now_ = {};
  stop();
}

RankTrials::Answers RankTrials::seek_workers(const std::string& name) {
  if (!why_not_now_.is_null()) return run_here(why_not_now_.at("why"), why_not_now_.at("kind").get<ErrorKind>());
  const bool runs = worker_ && !worker_->gone();
  const std::vector<Json> all =
      gather({{"why", why_never_}, {"runs", runs ? name_ : std::string()}, {"is_required", settings_.is_required}});
  is_required_ = std::ranges::any_of(all, [](const Json& each) { return each.at("is_required").get<bool>(); });
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (const std::string why = all[rank].at("why"); !why.empty())
      return run_here(of_rank(rank, why), ErrorKind::bad_input);
  const std::string running = all.front().at("runs");
  const bool all_run =
      !running.empty() && std::ranges::all_of(all, [&](const Json& each) { return each.at("runs") == running; });
  Json failure{{"why", ""}};
  if (!all_run) {
    int left = most_attempts;
    do {
      failure = try_to_begin(fmt::format("{}/{}", name, left));
    } while (failure.at("killed").get<bool>() && --left > 0);
  }
  if (!has_reason(failure) && team_.nccl() != nullptr)
    failure = first_failure([this] {
      if (const Json answer = asked({{"nccl", true}}); is_failure(answer))
        throw Error(ErrorKind::no_nccl, text_of(answer));
    });
  if (!has_reason(failure)) {
    here_.reset();
    return {};
  }
  const bool lacks_memory = failure.at("kind") == ErrorKind::out_of_memory;
  why_not_now_ = {{"why", failure.at("why")}, {"kind", lacks_memory ? ErrorKind::out_of_memory : ErrorKind::io}};
  return run_here(failure.at("why"), why_not_now_.at("kind").get<ErrorKind>());
}

Json RankTrials::try_to_begin(const std::string& name) {
  stop();
  Json failure = first_failure([this] { worker_.emplace(settings_.program); });
  if (!has_reason(failure)) failure = first_failure([&] { join(name); });
  if (has_reason(failure)) stop();
  return failure;
}

void RankTrials::join(const std::string& name) {
  name_ = name;
  const Json answer = asked({{"team", name},
                             {"rank", team_.rank()},
                             {"world", team_.world()},
                             {"device", device_},
                             {"bytes", team_.bytes()},
                             {"timeout_ms", to_meet.count()}});
  if (!is_failure(answer)) return;
  ErrorKind kind = ErrorKind::io;
  if (answer.contains("error"))
    kind = kind_of(answer);
  else if (answer.at("killed").get<bool>())
    kind = ErrorKind::interrupted;  // first_failure()'s sign of it
  std::string text = text_of(answer);
  // A reason is told once, so it must not have the name that these workers alone have.
  if (const std::size_t at = text.find(name); at != std::string::npos) text.replace(at, name.size(), team_.name());
  throw Error(kind, fmt::format("its worker could not join those of the other ranks: {}", text));
}

Json RankTrials::first_failure(const std::function<void()>& step) {
  Json own{{"why", ""}, {"kind", ErrorKind::io}};
  try {
    step();
  } catch (const Error& error) {
    own = {{"why", error.what()}, {"kind", error.kind()}};
  } catch (const std::exception& error) {
    own["why"] = error.what();
  }
  const std::vector<Json> all = gather(own);
  Json first{{"why", ""}, {"kind", ErrorKind::team_failed}, {"killed", false}};
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!has_reason(all[rank])) continue;
    if (!has_reason(first) ||
        (first.at("kind") == ErrorKind::team_failed && all[rank].at("kind") != ErrorKind::team_failed)) {
      first["why"] = of_rank(rank, all[rank].at("why"));
      first["kind"] = all[rank].at("kind");
    }
    if (all[rank].at("kind") == ErrorKind::interrupted) first["killed"] = true;
  }
  return first;
}

std::vector<Json> RankTrials::gather(const Json& own) const {
  std::vector<Json> all;
  for (const std::string& each : team::gather_texts(team_.rendezvous(), process::packed(own)))
    all.push_back(process::unpacked(each));
  return all;
}

RankTrials::Answers RankTrials::run_here(const std::string& why, ErrorKind kind) {
  stop();
  Answers answers;
  if (is_required_) {
    answers.refused.emplace(
        kind,
        fmt::format("team '{}': worker processes were asked for, and candidates cannot run in any: {}; mend that, "
                    "or leave Options::isolation automatic on all ranks, and they run in the ranks' own processes",
                    team_.name(), why));
    return answers;
  }
  if (!settings_.on_news || !told_.insert(why).second) return answers;
  settings_.on_news(
      fmt::format("team '{}': candidates run in the ranks' own processes, where one that hangs or faults ends the "
                  "tune: {}",
                  team_.name(), why));
  return answers;
}

void RankTrials::stop() {
  worker_.reset();
  name_.clear();
}

Json RankTrials::asked(const Json& message) {
  const bool prepares = message.contains("files") || message.contains("team") || message.contains("nccl");
  const auto limit = prepares ? settings_.limits.begin : settings_.limits.trial;
  Json answer;
  const Channel::Outcome outcome = worker_->ask(message, answer, limit);
  const auto lost = [](std::string text, bool late, bool killed) {
    return Json{{"lost", std::move(text)}, {"late", late}, {"killed", killed}};
  };
  if (outcome == Channel::Outcome::received) {
    try {
      require_readable(message, answer);
      return answer;
    } catch (const std::exception& error) {
      worker_->stop();
      return lost(fmt::format("the answer of the worker that tried it cannot be read: {}", error.what()), false, false);
    }
  }
  const std::string how = worker_->stop();
  switch (outcome) {
    case Channel::Outcome::late:
      return lost(
          fmt::format("it was not done after {} s, and was stopped", std::chrono::duration<double>(limit).count()),
          true, false);
    case Channel::Outcome::closed:
      return lost(fmt::format("the worker that tried it {}", how), false, worker_->was_killed());
    default: return lost("the worker that tried it answered what is no message", false, false);
  }
}

Json RankTrials::answered_here(const Json& message) {
  try {
    if (!here_) here_.emplace(team_, device_);
    return here_->answer(message);
  } catch (const Error& error) {
    return process::to_json(error);
  } catch (const std::exception& error) {
    return process::to_json(Error(ErrorKind::io, error.what()));
  }
}

void RankTrials::judge(Answers& answers, bool is_trial) {
  Weight heaviest = Weight::none;
  for (const Json& each : answers.all) heaviest = std::max(heaviest, weight_of(each, is_trial));
  if (heaviest == Weight::none) return;
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < answers.all.size(); ++rank)
    if (weight_of(answers.all[rank], is_trial) == heaviest) ranks.push_back(rank);
  answers.failure = fmt::format("on {}: {}", ranks_text(ranks), text_of(answers.all[ranks.front()]));
  answers.was_killed = heaviest == Weight::killed;
  answers.lacks_memory = heaviest == Weight::lacks_memory || heaviest == Weight::lacks_memory_in_trial;
  stop();
}

}  // namespace kiln::tune
