// cuModule*, cuFunc*, cuOccupancy*.
#include "module/module.hpp"

#include <algorithm>
#include <array>

#include "driver/entry.hpp"

using fake_cuda::Cubin;
using fake_cuda::entry_in_context;
using fake_cuda::Failure;
using fake_cuda::Machine;
using fake_cuda::require;
using fake_cuda::resolve;

namespace fake_cuda {

CUfunc_st& resolve(const Machine& machine, CUfunction function) {
  CUfunc_st* found = nullptr;
  machine.modules.for_each([&](const CUmod_st& module) {
    for (const auto& each : module.functions) {
      if (each.get() == function) found = each.get();
    }
  });
  require(found != nullptr, CUDA_ERROR_INVALID_HANDLE);
  return *found;
}

void load(Machine& machine, CUfunc_st& function) {
  if (function.loaded) return;
  forbid_while_capturing(machine);
  function.loaded = true;
}

std::int64_t occupancy(const CubinKernel& kernel, std::int64_t threads, std::int64_t dynamic_shared) {
  const std::int64_t warps = (threads + 31) / 32;
  const std::int64_t registers = (std::max<std::int64_t>(kernel.registers, 16) * 32 + 255) / 256 * 256 * warps;
  const std::int64_t shared = (kernel.static_shared + dynamic_shared + shared_reserved_per_block + 127) / 128 * 128;
  return std::min({blocks_per_multiprocessor, threads_per_multiprocessor / (warps * 32),
                   registers_per_multiprocessor / registers, shared_per_multiprocessor / shared});
}

}  // namespace fake_cuda

namespace {

bool runs_on(const Cubin& cubin, std::int64_t sm) { return cubin.sm / 10 == sm / 10 && cubin.sm <= sm; }

std::vector<std::unique_ptr<CUfunc_st>> make_functions(Cubin cubin) {
  std::vector<std::unique_ptr<CUfunc_st>> functions;
  for (fake_cuda::CubinKernel& kernel : cubin.kernels) {
    auto function = std::make_unique<CUfunc_st>();
    function->name = fake_cuda::parse_kernel_name(kernel.name);
    function->max_dynamic_shared = fake_cuda::shared_per_block_default - kernel.static_shared;
    function->kernel = std::move(kernel);
    functions.push_back(std::move(function));
  }
  return functions;
}

}  // namespace

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*, void**) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    forbid_while_capturing(machine);
    require(image != nullptr, CUDA_ERROR_INVALID_VALUE);
    std::optional<Cubin> cubin = fake_cuda::read_cubin(image);
    require(cubin.has_value(), CUDA_ERROR_INVALID_IMAGE);
    require(runs_on(*cubin, machine.settings.sm), CUDA_ERROR_NO_BINARY_FOR_GPU);
    auto functions = make_functions(std::move(*cubin));
    std::vector<std::string> names;
    for (const auto& function : functions) names.push_back(function->name.full);
    if (const auto refused = machine.faults.on_module(names)) throw Failure{*refused};
    *module = machine.modules.make(context, cubin->sm, std::move(functions));
  });
}

CUresult cuModuleUnload(CUmodule module) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st&) {
    forbid_while_capturing(machine);
    machine.modules.destroy(module);
  });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st&) {
    for (const auto& each : machine.modules[module].functions) {
      if (each->kernel.name != name) continue;
      *function = each.get();
      return;
    }
    throw Failure{CUDA_ERROR_NOT_FOUND};
  });
}

CUresult cuFuncLoad(CUfunction function) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st&) { load(machine, resolve(machine, function)); });
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st&) {
    CUfunc_st& function = resolve(machine, handle);
    load(machine, function);
    const auto answer = [&]() -> std::int64_t {
      switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return function.kernel.max_threads;
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: return function.kernel.static_shared;
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: return function.kernel.local;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: return function.kernel.registers;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: return function.module->sm;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: return function.max_dynamic_shared;
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: return function.any_cluster_size ? 1 : 0;
        case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET: return 0;
      }
      throw Failure{CUDA_ERROR_INVALID_VALUE};
    };
    *value = static_cast<int>(answer());
  });
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st&) {
    CUfunc_st& function = resolve(machine, handle);
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
      require(value >= 0 && value <= fake_cuda::shared_per_block_optin - function.kernel.static_shared,
              CUDA_ERROR_INVALID_VALUE);
      function.max_dynamic_shared = value;
    } else if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
      function.any_cluster_size = value != 0;
    } else {
      require(attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, CUDA_ERROR_INVALID_VALUE);
    }
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int block_size,
                                                     std::size_t shared_bytes) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st&) {
    require(block_size > 0, CUDA_ERROR_INVALID_VALUE);
    *blocks = static_cast<int>(
        fake_cuda::occupancy(resolve(machine, function).kernel, block_size, static_cast<std::int64_t>(shared_bytes)));
  });
}
