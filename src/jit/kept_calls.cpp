#include "jit/kept_calls.hpp"

#include <cstddef>
#include <type_traits>

namespace kiln::jit {

KeptCall* KeptCall::make(const std::vector<PassForm>& passes) noexcept {
  static_assert(std::is_trivially_destructible_v<KeptCall> && std::is_trivially_destructible_v<PassCall>);
  static_assert(sizeof(KeptCall) % alignof(PassCall) == 0);
  void* const memory = ::operator new (sizeof(KeptCall) + passes.size() * sizeof(PassCall),
                                       std::align_val_t{alignof(KeptCall)}, std::nothrow);
  if (memory == nullptr) return nullptr;
  auto* const made = new (memory) KeptCall;
  auto* calls = reinterpret_cast<std::byte*>(made + 1);
  for (const PassForm& pass : passes) {
    pass.link(made->frame, *new (calls) PassCall);
    calls += sizeof(PassCall);
  }
  return made;
}

[[gnu::cold, gnu::noinline]] KeptCall* KeptCalls::make(unsigned thread,
                                                       const std::vector<PassForm>& passes) const noexcept {
  if (thread == shared_thread_number) return nullptr;
  own_[thread].reset(KeptCall::make(passes));
  return own_[thread].get();
}

}  // namespace kiln::jit
