#include "emulator/fiber.hpp"

#include <cstdint>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define EMULATOR_TELLS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATOR_TELLS_SANITIZER
#endif
#endif
#ifdef EMULATOR_TELLS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulator {
namespace {

/// Around a switch of stacks: AddressSanitizer follows.
void leaving([[maybe_unused]] void** kept, [[maybe_unused]] const void* to, [[maybe_unused]] std::size_t bytes) {
#ifdef EMULATOR_TELLS_SANITIZER
  __sanitizer_start_switch_fiber(kept, to, bytes);
#endif
}
void arrived([[maybe_unused]] void* kept, [[maybe_unused]] const void** from, [[maybe_unused]] std::size_t* bytes) {
#ifdef EMULATOR_TELLS_SANITIZER
  __sanitizer_finish_switch_fiber(kept, from, bytes);
#endif
}

}  // namespace

void Fiber::start(std::span<std::byte> stack, std::function<void()> body) {
  stack_ = stack;
  body_ = std::move(body);
  ended_ = false;
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.data();
  inside_.uc_stack.ss_size = stack_.size();
  inside_.uc_link = &outside_;
  const auto self = reinterpret_cast<std::uintptr_t>(this);  // makecontext passes nothing wider than int
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
}

void Fiber::enter(unsigned high, unsigned low) {
  auto& self = *reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low);
  arrived(nullptr, &self.outer_stack_, &self.outer_bytes_);
  self.body_();
  self.ended_ = true;
  leaving(nullptr, self.outer_stack_, self.outer_bytes_);
}

void Fiber::resume() {
  void* kept = nullptr;
  leaving(&kept, stack_.data(), stack_.size());
  swapcontext(&outside_, &inside_);
  arrived(kept, nullptr, nullptr);
}

void Fiber::pause() {
  void* kept = nullptr;
  leaving(&kept, outer_stack_, outer_bytes_);
  swapcontext(&inside_, &outside_);
  arrived(kept, &outer_stack_, &outer_bytes_);
}

}  // namespace emulator
