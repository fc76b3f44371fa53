// A server that is stopped again and again inside operations.
#include <cstdlib>
#include <random>

#include "redis/support.hpp"
#include "rows.hpp"

namespace kiln::testing {
namespace {

constexpr milliseconds short_limit(20);

int stops() {
  const char* const chosen = std::getenv("KILN_TEST_STOPS");
  return chosen != nullptr ? std::atoi(chosen) : 50;
}

/// A value that says of which key it is and how often the key was written, twice, around bytes that a cut would change.
std::string value_of(const std::string& key, int number) {
  const std::string name = key + " " + std::to_string(number);
  return name + std::string(100'000, static_cast<char>('a' + number % 26)) + name;
}

/// Works on one key as fast as it can, and holds to what it was told.
class Worker {
 public:
  Worker(const Server& server, int number)
      : store_(remote::open_redis(server.address())),
        place_{"space", "key" + std::to_string(number)},
        token_("token" + std::to_string(number)) {}
  void work(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const auto began = Clock::now();
      try {
        step(began + short_limit);
      } catch (const RemoteFailure& failure) {
        ++failures;
        CHECK((failure.kind() == Kind::slow || failure.kind() == Kind::unreachable));
        before_.reset();  // whether it was written is not known
      }
      longest = std::max(longest, Clock::now() - began);
      ++operations;
    }
  }
  /// Whether the last write that was told to have succeeded is there, or one that was begun after it.
  void check_kept() {
    const auto last = store_->get(place_, within());
    const int kept = last ? std::stoi(last->substr(place_.key.size() + 1)) : 0;
    CHECK(kept >= acknowledged_);
    CHECK(kept <= begun_);
  }

  int operations = 0, failures = 0;
  Clock::duration longest{};

 private:
  void step(Clock::time_point end) {
    switch (operations % 4) {
      case 0: {
        before_ = store_->get(place_, end);
        const int number = before_ ? std::stoi(before_->substr(place_.key.size() + 1)) : 0;
        if (before_) CHECK(*before_ == value_of(place_.key, number));
        CHECK(number >= acknowledged_);
        break;
      }
      case 1:
        if (!before_ && acknowledged_ > 0) break;
        if (store_->put(place_, value_of(place_.key, ++begun_), before_, end)) acknowledged_ = begun_;
        break;
      case 2: store_->claim(place_, token_, term, end); break;
      default: store_->release(place_, token_, end);
    }
  }

  std::unique_ptr<store::RemoteStore> store_;
  store::RemotePlace place_;
  std::string token_;
  std::optional<std::string> before_;
  int begun_ = 0, acknowledged_ = 0;
};

TEST_SUITE_BEGIN("server");

TEST_CASE("stops inside operations end them by their deadline, and lose and mix up nothing") {
  const Server server;
  std::vector<std::unique_ptr<Worker>> workers;
  for (int number = 0; number < 3; ++number) workers.push_back(std::make_unique<Worker>(server, number));
  {
    std::vector<std::jthread> threads;
    for (const auto& worker : workers)
      threads.emplace_back([&worker](const std::stop_token& stop) { worker->work(stop); });
    std::minstd_rand random(1);
    for (int done = 0; done < stops(); ++done) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
      server.signal(SIGSTOP);
      std::this_thread::sleep_for(milliseconds(random() % 40));
      server.signal(SIGCONT);
    }
  }
  int operations = 0;
  Clock::duration longest{};
  for (const auto& worker : workers) {
    operations += worker->operations;
    longest = std::max(longest, worker->longest);
    worker->check_kept();
    CHECK(worker->failures > 0);
    CHECK(worker->longest < short_limit + slack);
    MESSAGE(worker->operations, " operations, ", worker->failures, " failed, the longest took ",
            std::chrono::duration<double, std::milli>(worker->longest).count(), " ms");
  }
  KeptRow("operations")
      .with("back_end", "server")
      .with("stops", stops())
      .with("operations", operations)
      .with("longest_seconds", std::chrono::duration<double>(longest).count());
}

TEST_SUITE_END();

}  // namespace
}  // namespace kiln::testing
