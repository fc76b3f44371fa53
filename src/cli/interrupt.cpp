#include "cli/interrupt.hpp"

#include <csignal>
#include <initializer_list>

namespace kiln::cli {
namespace {

volatile std::sig_atomic_t requested_flag = 0;  // a global: signal handlers have no argument for it

extern "C" void on_signal(int /*signal*/) { requested_flag = 1; }

/// A shell makes background commands ignore SIGINT. An ignored signal stays ignored.
bool is_ignored(int signal) {
  struct sigaction present {};
  return ::sigaction(signal, nullptr, &present) == 0 && present.sa_handler == SIG_IGN;
}

}  // namespace

Interrupt::Interrupt() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int signal : {SIGINT, SIGTERM})
    if (!is_ignored(signal)) ::sigaction(signal, &action, nullptr);
}

Interrupt::~Interrupt() {
  for (const int signal : {SIGINT, SIGTERM})
    if (!is_ignored(signal)) std::signal(signal, SIG_DFL);
}

bool Interrupt::requested() noexcept { return requested_flag != 0; }

}  // namespace kiln::cli
