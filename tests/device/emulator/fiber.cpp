#include "emulator/fiber.hpp"

#include <algorithm>
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

#ifdef __x86_64__
// swapcontext() asks the kernel for the signal mask twice a switch, which was a third of these tests' time, and AddressSanitizer's clears all of a
// stack's shadow. Here: rdi is where the top of the stack that is left goes, rsi the top of the other one.
extern "C" void emulator_switch_stacks(void** left, void* entered);
asm(R"(
.text
.type emulator_switch_stacks, @function
emulator_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  retq
.type emulator_enter_stack, @function
emulator_enter_stack:
  movq %rbx, %rdi
  callq *%r12
  ud2
.size emulator_switch_stacks, . - emulator_switch_stacks
)");
extern "C" void emulator_enter_stack();
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
  const auto self = reinterpret_cast<std::uintptr_t>(this);
#ifdef __x86_64__
  constexpr std::size_t saved = 6;  // registers; r12 is the fourth that is popped, rbx the fifth
  auto* const top = reinterpret_cast<std::uintptr_t*>(reinterpret_cast<std::uintptr_t>(stack.data() + stack.size()) &
                                                      ~std::uintptr_t{15});
  auto* const first = top - saved - 3;  // so that the stack is aligned where emulator_enter_stack calls
  std::fill(first, top, 0);
  first[3] = reinterpret_cast<std::uintptr_t>(&Fiber::enter);
  first[4] = self;
  first[saved] = reinterpret_cast<std::uintptr_t>(&emulator_enter_stack);
  inside_ = first;
#else
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.data();
  inside_.uc_stack.ss_size = stack_.size();
  // makecontext passes nothing wider than int
  void (*const entry)(unsigned, unsigned) = [](unsigned high, unsigned low) {
    enter(*reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low));
  };
  makecontext(&inside_, reinterpret_cast<void (*)()>(entry), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
#endif
}

void Fiber::enter(Fiber& self) {
  arrived(nullptr, &self.outer_stack_, &self.outer_bytes_);
  self.body_();
  self.ended_ = true;
  leaving(nullptr, self.outer_stack_, self.outer_bytes_);
  self.switch_stacks(false);
}

void Fiber::switch_stacks(bool inwards) {
#ifdef __x86_64__
  emulator_switch_stacks(inwards ? &outside_ : &inside_, inwards ? inside_ : outside_);
#else
  swapcontext(inwards ? &outside_ : &inside_, inwards ? &inside_ : &outside_);
#endif
}

void Fiber::resume() {
  void* kept = nullptr;
  leaving(&kept, stack_.data(), stack_.size());
  switch_stacks(true);
  arrived(kept, nullptr, nullptr);
}

void Fiber::pause() {
  void* kept = nullptr;
  leaving(&kept, outer_stack_, outer_bytes_);
  switch_stacks(false);
  arrived(kept, &outer_stack_, &outer_bytes_);
}

}  // namespace emulator
