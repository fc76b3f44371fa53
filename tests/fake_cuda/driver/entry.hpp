// What every entry point does before its own work: the lock, the count, the faults, the state that it needs.
#pragma once

#include <cstddef>
#include <new>

#include "cuda/driver_api.hpp"
#include "driver/machine.hpp"

// Declared by the very list that Kiln calls them through: a definition that differs does not compile.
#pragma GCC visibility push(default)
extern "C" {
#define FAKE_CUDA_DECLARE(presence, symbol, parameters) CUresult symbol parameters;
KILN_CUDA_DRIVER_FUNCTIONS(FAKE_CUDA_DECLARE)
#undef FAKE_CUDA_DECLARE
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);  // for tests: Kiln never resets a device
}
#pragma GCC visibility pop

namespace fake_cuda {

/// Calls work(machine) under the lock, for calls that need no context.
template <typename Work>
CUresult entry(const char* function, Work work) noexcept {
  Machine& machine = Machine::get();
  std::unique_lock lock(machine.mutex);
  const auto failed = machine.faults.on_call(function);
  machine.healed.wait(lock, [&] { return !machine.faults.holds(function); });
  if (failed) return *failed;
  if (!machine.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  try {
    work(machine);
    return CUDA_SUCCESS;
  } catch (const Failure& failure) {
    return failure.result;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

/// Calls work(machine, context) with the current context, which no kernel has broken.
template <typename Work>
CUresult entry_in_context(const char* function, Work work) noexcept {
  return entry(function, [&](Machine& machine) {
    require(!context_stack().empty(), CUDA_ERROR_INVALID_CONTEXT);
    CUctx_st& context = *context_stack().back();
    require(context.broken == CUDA_SUCCESS, context.broken);
    work(machine, context);
  });
}

}  // namespace fake_cuda
