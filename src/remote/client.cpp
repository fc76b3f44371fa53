#include "remote/client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <utility>

#include "manifest/keep_loaded.hpp"
#include "remote/client_state.hpp"

namespace kiln::remote {
namespace {

using Clock = std::chrono::steady_clock;
using store::RemoteFailure;
using store::RemotePlace;

constexpr std::chrono::seconds close_limit{2};
constexpr std::chrono::seconds first_look_again{30}, longest_look_again{600};

/// Has the thread do the work before what nobody waits for. Nothing: it was not done within the limit, or not at all.
template <class Answer>
std::optional<Answer> ask(const std::shared_ptr<ClientState>& state, Does does, std::chrono::milliseconds limit,
                          std::function<Answer(ClientState&)> work) {
  struct Question {
    std::promise<Answer> answer;
    std::atomic<bool> is_given_up = false;
  };
  auto question = std::make_shared<Question>();
  std::future<Answer> answer = question->answer.get_future();
  {
    const std::lock_guard lock(state->mutex);
    if (state->is_closing || state->is_quiet(does) || !ClientState::begin_thread(state)) return std::nullopt;
    const auto place = std::find_if(state->jobs.begin(), state->jobs.end(),
                                    [](const ClientState::Job& job) { return !job.is_awaited; });
    state->jobs.insert(place,
                       {[question, asked = std::move(work)](ClientState& of) -> std::optional<Clock::time_point> {
                          if (!question->is_given_up) question->answer.set_value(asked(of));
                          return std::nullopt;
                        },
                        true,
                        false,
                        {}});
    state->changed.notify_all();
  }
  try {
    if (answer.wait_for(limit) == std::future_status::ready) return answer.get();
  } catch (const std::exception&) {  // what the thread had no memory for
    return std::nullopt;
  }
  question->is_given_up = true;
  bool hangs = false;
  {
    const std::lock_guard lock(state->mutex);
    hangs = state->asking_since != Clock::time_point() && Clock::now() - state->asking_since > 2 * operation_limit;
  }
  if (hangs)
    state->failed(does, RemoteFailure::Kind::slow, fmt::format("{} does not answer in time", state->store->name()));
  return std::nullopt;
}

}  // namespace

Client::Client(std::unique_ptr<store::RemoteStore> store, ClientSettings settings)
    : state_(std::make_shared<ClientState>(std::move(store), std::move(settings))) {}

Client::~Client() {
  std::unique_lock lock(state_->mutex);
  state_->is_closing = true;
  std::erase_if(state_->jobs, [](const ClientState::Job& job) { return !job.is_needed_at_close; });
  state_->changed.notify_all();
  if (!state_->thread.joinable()) return;
  if (state_->thread.get_id() == std::this_thread::get_id()) {
    manifest::keep_library_loaded();
    state_->thread.detach();
    return;
  }
  state_->changed.wait_for(lock, close_limit, [this] { return state_->has_ended; });
  state_->is_abandoned = true;
  state_->changed.wait(lock, [this] { return state_->calls == 0; });
  const bool is_joined = state_->has_ended;
  lock.unlock();
  if (is_joined) {
    state_->thread.join();
  } else {
    manifest::keep_library_loaded();
    state_->thread.detach();
  }
}

std::optional<Rows> Client::fetch(const RemotePlace& place) {
  const auto rows = ask<std::optional<Rows>>(state_, Does::read, answer_limit,
                                             [place](ClientState& state) { return state.look_up(place); });
  return rows ? *rows : std::nullopt;
}

void Client::fetch_when_there(const RemotePlace& place, std::function<void(Rows)> then) {
  const auto look = [place, given = std::move(then),
                     pause = first_look_again](ClientState& state) mutable -> std::optional<Clock::time_point> {
    std::optional<Rows> rows = state.look_up(place);
    if (!rows) return Clock::now() + std::exchange(pause, std::min(2 * pause, longest_look_again));
    state.call([&] { given(std::move(*rows)); });
    return std::nullopt;
  };
  ClientState::add(state_, {look, false, false, {}});
}

std::vector<std::string> Client::spaces(std::chrono::milliseconds limit) {
  auto spaces = ask<std::vector<std::string>>(state_, Does::read, limit,
                                              [limit](ClientState& state) { return state.find_spaces(limit); });
  return spaces ? std::move(*spaces) : std::vector<std::string>();
}

std::vector<Rows> Client::list(const std::string& space, std::chrono::milliseconds limit) {
  auto rows = ask<std::vector<Rows>>(state_, Does::read, limit,
                                     [space, limit](ClientState& state) { return state.look_up_all(space, limit); });
  return rows ? std::move(*rows) : std::vector<Rows>();
}

Client::Claimed Client::claim(const RemotePlace& place) {
  return ask<Claimed>(state_, Does::write, answer_limit, [place](ClientState& state) { return state.claim(place); })
      .value_or(Claimed::unknown);
}

void Client::release(const RemotePlace& place) {
  const auto work = [place](ClientState& state) -> std::optional<Clock::time_point> {
    state.release(place);
    return std::nullopt;
  };
  ClientState::add(state_, {work, false, true, {}});
}

void Client::publish(store::Record record, std::vector<store::CubinRow> code) {
  const auto rows = std::make_shared<const Rows>(Rows{std::move(record), std::move(code)});
  ClientState::add(state_,
                   {[rows](ClientState& state) { return state.write(rows->record, rows->code); }, false, true, {}});
}

bool Client::call_after(std::chrono::milliseconds pause, std::function<void()> work) {
  const auto call = [given = std::move(work)](ClientState& state) -> std::optional<Clock::time_point> {
    state.call(given);
    return std::nullopt;
  };
  return ClientState::add(state_, {call, false, false, Clock::now() + pause});
}

bool Client::wait_until(Clock::time_point end) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(
      lock, end, [this] { return !state_->is_busy && state_->calls == 0 && state_->next_due() == state_->jobs.end(); });
}

ClientCounters Client::counters() const {
  return {state_->hits, state_->misses, state_->errors, state_->bytes, state_->published};
}

bool Client::is_this_thread() const {
  const std::lock_guard lock(state_->mutex);
  return state_->thread.get_id() == std::this_thread::get_id();
}

void Client::call_at_end(std::function<void()> last) {
  manifest::keep_library_loaded();
  const std::lock_guard lock(state_->mutex);
  state_->is_closing = true;
  state_->last = std::move(last);
}

}  // namespace kiln::remote
