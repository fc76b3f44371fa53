// What tests of teams wait for.
#include "team/ranks.hpp"

#include <sys/time.h>

#include <thread>

using namespace kiln::test;

namespace {

/// A signal every few milliseconds while it lives, which ends system calls that wait.
class Signals {
 public:
  Signals() {
    struct sigaction counted {};
    counted.sa_handler = [](int) {};  // and no SA_RESTART
    REQUIRE(sigaction(SIGALRM, &counted, &before_) == 0);
    const itimerval every{{0, 2000}, {0, 2000}};
    REQUIRE(setitimer(ITIMER_REAL, &every, nullptr) == 0);
  }
  ~Signals() {
    const itimerval none{};
    setitimer(ITIMER_REAL, &none, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  struct sigaction before_ {};
};

}  // namespace

TEST_CASE("a signal is no silence of a rank, and no end of what it says") {
  Ranks ranks;
  ranks.begin([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    Ranks::say('!');
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return std::string("done");
  });
  const Signals signals;
  ranks.await(0, '!');
  CHECK(ranks.outcome(0) == "done");
}
