#include "jit/thread_calls.hpp"

#include <cstddef>
#include <type_traits>

namespace kiln::jit {

ThreadCall* ThreadCall::make(const std::vector<PassForm>& passes) noexcept {
  static_assert(std::is_trivially_destructible_v<ThreadCall> && std::is_trivially_destructible_v<PassCall>);
  static_assert(sizeof(ThreadCall) % alignof(PassCall) == 0);
  void* const memory = ::operator new (sizeof(ThreadCall) + passes.size() * sizeof(PassCall),
                                       std::align_val_t{alignof(ThreadCall)}, std::nothrow);
  if (memory == nullptr) return nullptr;
  auto* const made = new (memory) ThreadCall;
  auto* calls = reinterpret_cast<std::byte*>(made + 1);
  for (const PassForm& pass : passes) {
    pass.link(made->frame, *new (calls) PassCall);
    calls += sizeof(PassCall);
  }
  return made;
}

[[gnu::cold, gnu::noinline]] ThreadCall* ThreadCalls::make(unsigned thread,
                                                           const std::vector<PassForm>& passes) const noexcept {
  if (thread == shared_thread_number) return nullptr;
  own_[thread].reset(ThreadCall::make(passes));
  return own_[thread].get();
}

}  // namespace kiln::jit
