// The store that machines share (remote/client.hpp), as the miss path and tunes use it: what it has goes to the
// overlay, and what is tuned here goes to it. Launches that hit, and captures, never come here.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "manifest/site.hpp"
#include "remote/client.hpp"

namespace kiln::engine {

struct EngineState;

class SharedAnswers {
 public:
  /// Null without Options::remote and KILN_REMOTE. Throws Error(bad_input) for an address that can never work, and for
  /// a signing key that is none.
  static std::unique_ptr<SharedAnswers> open(EngineState& engine);
  SharedAnswers(EngineState& engine, std::unique_ptr<store::RemoteStore> store, remote::ClientSettings settings);
  /// Stops a compile for what arrived, and waits for what is being published, 2 s at most.
  ~SharedAnswers();
  SharedAnswers(const SharedAnswers&) = delete;
  SharedAnswers& operator=(const SharedAnswers&) = delete;

  /// Puts the bucket's rows into the overlay if the store has them and answers in time. Returns whether it did. Here
  /// and below look-ups find the rows at once; the client's thread writes those of a fifth of a second together.
  bool bring(const manifest::Bucket& bucket);
  /// Puts all rows of the op on this device into the overlay whose buckets have none.
  void bring_all(const manifest::Site& site);
  /// Once the store has the bucket's rows, puts them into the overlay and calls `then`, on a thread of its own with the
  /// engine's context current. Does so once a bucket.
  void bring_when_there(const manifest::Bucket& bucket, std::function<void()> then);

  enum class Turn : std::uint8_t { ours, found, elsewhere };
  /// Whether to tune the bucket now: yes where the store gave its claim, or does not answer. Waits for another
  /// machine's tune as long as its claim is renewed, until `end`. Calls `while_waiting` meanwhile, which may throw.
  /// After Turn::ours call release().
  Turn await_turn(const manifest::Bucket& bucket, std::chrono::steady_clock::time_point end,
                  const std::function<void()>& while_waiting);
  void release(const manifest::Bucket& bucket);
  void publish(const store::Record& record, std::vector<store::CubinRow> code);

  /// Client::wait_until(), and writes what was fetched, while time is left.
  bool wait_until(std::chrono::steady_clock::time_point end);
  /// Returns false when the end came before. A write that fails is done with: it was reported.
  bool write_until(std::chrono::steady_clock::time_point end);
  [[nodiscard]] remote::Client& client() noexcept { return client_; }

 private:
  void keep(const remote::Rows& rows);
  void write_soon();

  EngineState& engine_;
  std::atomic<bool> is_ending_ = false;
  std::atomic<bool> will_write_ = false;  // the client's thread, soon
  std::mutex mutex_;
  std::unordered_set<std::string> awaited_;  // keys of bring_when_there()
  remote::Client client_;                    // last: its thread uses the others
};

}  // namespace kiln::engine
