#include "store/size_limit.hpp"

#include <ctime>

namespace kiln::store {
namespace {

sigset_t only_the_limit() noexcept {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

}  // namespace

SizeLimitGuard::SizeLimitGuard() noexcept {
  const sigset_t limit = only_the_limit();
  sigset_t before;
  sigemptyset(&before);
  pthread_sigmask(SIG_BLOCK, &limit, &before);
  blocked_before_ = sigismember(&before, SIGXFSZ) == 1;
  if (!blocked_before_) return;
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  pending_before_ = sigismember(&pending, SIGXFSZ) == 1;
}

SizeLimitGuard::~SizeLimitGuard() {
  const sigset_t limit = only_the_limit();
  const timespec at_once{};
  if (!pending_before_) sigtimedwait(&limit, nullptr, &at_once);
  if (!blocked_before_) pthread_sigmask(SIG_UNBLOCK, &limit, nullptr);
}

}  // namespace kiln::store
