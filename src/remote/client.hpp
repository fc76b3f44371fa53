// An engine's side of a shared store: one thread that asks it, within limits, so that nothing else waits for it longer
// or fails because of it.
//
// A store that fails is left alone: for 30 s, then twice as long each time, 10 min at most. Until then look-ups that
// somebody waits for are answered at once with nothing, and all else is done later. Values that do not hold are passed
// over. Each kind of failure and each kind of flaw is told once.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "remote/sealed.hpp"
#include "store/remote.hpp"

namespace kiln::remote {

inline constexpr std::chrono::milliseconds operation_limit{500};  // of one operation, its connecting included
inline constexpr std::chrono::milliseconds answer_limit{1100};  // of a record, its machine code and what was under way
inline constexpr std::chrono::seconds first_quiet{30}, longest_quiet{600};
inline constexpr std::chrono::seconds claim_term{30};

inline constexpr std::size_t most_waiting =
    4096;  // look-ups that nobody waits for, and publications; later ones are dropped

struct ClientSettings {
  store::KeyRing keys = {};
  bool only_signed = false;                      // records that no trusted key signed do not count
  std::optional<store::PrivateKey> signer = {};  // without one no machine code is published
  /// Whether the op has the record's configs, as of a base's record. On the client's thread.
  std::function<bool(const store::Record&)> is_usable = {};
  /// Whether machine code need not be fetched. On the client's thread.
  std::function<bool(const manifest::Digest&)> has_code = {};
  std::function<void(const std::string&)> warn = {};  // on any thread
};

/// A bucket's rows.
struct Rows {
  store::Record record;
  std::vector<store::CubinRow> code;
};

struct ClientCounters {
  std::int64_t hits = 0, misses = 0;  // look-ups
  std::int64_t errors = 0;            // operations that failed, and values that did not hold
  std::int64_t bytes = 0;             // of values, read and written
  std::int64_t published = 0;         // records that were written
};

struct ClientState;

/// Thread-safe.
class Client {
 public:
  Client(std::unique_ptr<store::RemoteStore> store, ClientSettings settings);
  /// Waits for what is being published, 2 s at most. A call of the system that does not return is left behind with its
  /// thread, which touches nothing of the caller's afterwards; the library then stays loaded.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Waits answer_limit at most. Nothing: the store has none, none that holds, or does not answer.
  [[nodiscard]] std::optional<Rows> fetch(const store::RemotePlace& place);
  /// Calls `then` on the client's thread when the store has the rows. Asks again from time to time.
  void fetch_when_there(const store::RemotePlace& place, std::function<void(Rows)> then);
  /// The rows of a space. Passes over what has not come within the limit.
  [[nodiscard]] std::vector<Rows> list(const std::string& space, std::chrono::milliseconds limit);
  /// The spaces that have values; none where the store does not answer.
  [[nodiscard]] std::vector<std::string> spaces(std::chrono::milliseconds limit);

  enum class Claimed : std::uint8_t { ours, elsewhere, unknown };  // unknown: the store does not answer
  /// Renewed until release(). Waits answer_limit at most.
  [[nodiscard]] Claimed claim(const store::RemotePlace& place);
  void release(const store::RemotePlace& place);
  /// Writes the rows, machine code first, unless the store has a better record. Returns at once.
  void publish(store::Record record, std::vector<store::CubinRow> code);

  /// Calls `work` on the client's thread after the pause, unless the client ends before. Returns false where it will
  /// not: the thread could not be begun, or too much waits.
  bool call_after(std::chrono::milliseconds pause, std::function<void()> work);

  /// Waits until nothing is to be done now. Returns false when `end` passed before.
  bool wait_until(std::chrono::steady_clock::time_point end);
  [[nodiscard]] ClientCounters counters() const;
  [[nodiscard]] bool is_this_thread() const;
  /// Has the client's thread call `last` when its present call of `then` has returned, as its last one.
  void call_at_end(std::function<void()> last);

 private:
  std::shared_ptr<ClientState> state_;
};

}  // namespace kiln::remote
