#include "jit/kept_calls.hpp"

#include <new>

namespace kiln::jit {

[[gnu::cold, gnu::noinline]] KeptCall* KeptCalls::make(unsigned thread,
                                                       const std::vector<PassForm>& passes) const noexcept {
  if (thread == shared_thread_number) return nullptr;
  std::unique_ptr<KeptCall> made(new (std::nothrow) KeptCall);
  if (made == nullptr) return nullptr;
  made->passes.reset(new (std::nothrow) PassCall[passes.size()]);
  if (made->passes == nullptr) return nullptr;
  for (std::size_t i = 0; i < passes.size(); ++i) passes[i].link(made->frame, made->passes[i]);
  own_[thread] = std::move(made);
  return own_[thread].get();
}

}  // namespace kiln::jit
