// Loaded modules and their functions.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/driver_types.hpp"
#include "driver/settings.hpp"
#include "module/cubin.hpp"
#include "module/kernel_name.hpp"

struct CUmod_st;

struct CUfunc_st {
  const CUmod_st* module = nullptr;
  fake_cuda::CubinKernel kernel;
  fake_cuda::KernelName name;
  std::int64_t max_dynamic_shared = 0;  // bytes; raised by cuFuncSetAttribute
  bool any_cluster_size = false;        // beyond 8 blocks
  bool loaded = false;  // lazily, as by default since CUDA 12: when it is asked for, asked about or launched
};

struct CUmod_st {
  CUmod_st(CUctx_st& of, std::int64_t architecture, std::vector<std::unique_ptr<CUfunc_st>> kernels)
      : context(&of), sm(architecture), functions(std::move(kernels)) {
    for (const auto& function : functions) function->module = this;
  }
  CUctx_st* context;
  std::int64_t sm;
  std::vector<std::unique_ptr<CUfunc_st>> functions;
};

namespace fake_cuda {

struct Machine;

/// Throws Failure(CUDA_ERROR_INVALID_HANDLE) for a function whose module was unloaded.
CUfunc_st& resolve(const Machine& machine, CUfunction function);

/// Loads the function's code if it is not. A call that allocates, so captures may forbid it.
void load(Machine& machine, CUfunc_st& function);

/// Resident blocks a multiprocessor, by registers, threads and shared memory: 0 when not even one fits.
std::int64_t occupancy(const CubinKernel& kernel, std::int64_t threads, std::int64_t dynamic_shared);

}  // namespace fake_cuda
