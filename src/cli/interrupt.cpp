#include "cli/interrupt.hpp"

#include <csignal>

namespace kiln::cli {
namespace {

volatile std::sig_atomic_t requested_flag = 0;  // a signal handler can reach nothing else

extern "C" void on_signal(int /*signal*/) { requested_flag = 1; }

}  // namespace

Interrupt::Interrupt() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool Interrupt::requested() noexcept { return requested_flag != 0; }

}  // namespace kiln::cli
