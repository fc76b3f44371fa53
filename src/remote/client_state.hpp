// The state of a Client, which its thread shares and may outlast.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "remote/client.hpp"

namespace kiln::remote {

/// How long a failing store is left alone.
struct Quiet {
  std::chrono::steady_clock::time_point until{};
  std::chrono::seconds next = first_quiet;
  [[nodiscard]] bool is_on() const { return std::chrono::steady_clock::now() < until; }
  void begin() {
    if (is_on()) return;
    until = std::chrono::steady_clock::now() + next;
    next = std::min(2 * next, longest_quiet);
  }
  void end() { *this = {}; }
};

enum class Does : std::uint8_t { read, write };

/// Owned by the client and its thread, which may outlast it.
struct ClientState {
  using Clock = std::chrono::steady_clock;
  /// Returns when it is to be done again, or nothing when it is done.
  using Work = std::function<std::optional<Clock::time_point>(ClientState&)>;
  struct Job {
    Work work;
    bool is_awaited = false;          // by a thread of the caller's
    bool is_needed_at_close = false;  // it writes
    Clock::time_point not_before{};
  };
  struct Claim {
    store::RemotePlace place;
    Clock::time_point renewed;
  };

  ClientState(std::unique_ptr<store::RemoteStore> opened, ClientSettings chosen);

  // Of any thread.
  /// Returns false where the job is dropped.
  static bool add(const std::shared_ptr<ClientState>& state, Job job);
  /// Precondition of these four: the mutex is held.
  static bool begin_thread(const std::shared_ptr<ClientState>& state);
  [[nodiscard]] bool is_quiet(Does does) const { return reads.is_on() || (does == Does::write && writes.is_on()); }
  [[nodiscard]] std::deque<Job>::iterator next_due();
  [[nodiscard]] Clock::time_point next_wake() const;
  void failed(Does does, store::RemoteFailure::Kind kind, const std::string& why);
  void ignored(const std::string& flaw);
  void tell_once(const std::string& kind, const std::string& warning);
  /// Calls what the caller gave, unless the client is gone.
  void call(const std::function<void()>& given);

  // Of the client's thread.
  void serve();
  void do_next(std::unique_lock<std::mutex>& lock, const std::deque<Job>::iterator& due);
  /// Asks the store, unless it is left alone. Nothing: it failed, which was counted and told.
  template <class Ask>
  auto attempt(Does does, Ask&& ask, std::chrono::milliseconds limit = operation_limit)
      -> std::optional<decltype(ask(Clock::time_point{}))>;
  [[nodiscard]] std::optional<Rows> look_up(const store::RemotePlace& place);
  [[nodiscard]] std::vector<Rows> look_up_all(const std::string& space, std::chrono::milliseconds limit);
  [[nodiscard]] std::vector<std::string> find_spaces(std::chrono::milliseconds limit);
  [[nodiscard]] Client::Claimed claim(const store::RemotePlace& place);
  void release(const store::RemotePlace& place);
  [[nodiscard]] std::optional<SealedRow> accepted(Opened<SealedRow> opened);
  [[nodiscard]] Rows with_code(SealedRow row, Clock::time_point end);
  std::optional<Clock::time_point> write(const store::Record& record, const std::vector<store::CubinRow>& code);
  [[nodiscard]] Signed own_signature() const;
  /// Leaves code of the store that is signed as well as ours. Returns the keys that the store has then.
  std::vector<manifest::Digest> write_code(const std::vector<store::CubinRow>& code);
  void renew_claims(std::unique_lock<std::mutex>& lock);

  const std::unique_ptr<store::RemoteStore> store;
  const ClientSettings settings;
  const std::string token;  // of its claims
  std::atomic<std::int64_t> hits{0}, misses{0}, errors{0}, bytes{0}, published{0};

  mutable std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  std::deque<Job> jobs;
  std::vector<Claim> claims;
  Quiet reads, writes;
  std::set<std::string> told;
  std::thread thread;                // joinable from its beginning until ~Client
  bool has_ended = false;            // the thread
  bool is_busy = false;              // the thread does a job
  Clock::time_point asking_since{};  // the store; zero: it is not asked
  int calls = 0;                     // of what the caller gave
  bool is_closing = false;           // nothing is added any more
  bool is_abandoned = false;         // nothing is waited for any more
  std::function<void()> last;
};

}  // namespace kiln::remote
