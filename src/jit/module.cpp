#include "jit/module.hpp"

#include <array>
#include <utility>

#include "cuda/device.hpp"
#include "cuda/nvrtc_api.hpp"
#include "jit/parameters.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

using cuda::check;
using cuda::Driver;

CUmodule load(std::span<const std::byte> image) {
  std::array<char, 4096> log{};
  std::array<CUjit_option, 2> options = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
  CUmodule module = nullptr;
  const CUresult result = Driver::get().cuModuleLoadDataEx(
      &module, image.data(), static_cast<unsigned int>(options.size()), options.data(), values.data());
  // Versions that do not fit each other show as these.
  const bool is_of_version = result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_NO_BINARY_FOR_GPU ||
                             result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  const cuda::Nvrtc* const nvrtc = is_of_version ? cuda::Nvrtc::find() : nullptr;
  const std::string newer = nvrtc != nullptr ? cuda::why_newer_than_driver(*nvrtc) : std::string();
  const std::string versions = newer.empty() ? "" : " (" + newer + ")";
  const std::string said = log[0] != '\0' ? std::string("; the driver says: ") + log.data() : "";
  check(result, ("loading a cubin of " + std::to_string(image.size()) + " bytes" + versions + said).c_str());
  return module;
}

CUfunction find_function(CUmodule module, const std::string& lowered_name) {
  const Driver& driver = Driver::get();
  CUfunction function = nullptr;
  check(driver.cuModuleGetFunction(&function, module, lowered_name.c_str()),
        ("finding the function " + lowered_name + " in its cubin").c_str());
  // With lazy loading, the default since CUDA 12, the first launch would load the code, which a capture forbids.
  // Drivers before 12.4 lack cuFuncLoad, and load the code to read an attribute.
  int registers = 0;
  check(driver.cuFuncLoad != nullptr ? driver.cuFuncLoad(function)
                                     : driver.cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function),
        ("loading the function " + lowered_name).c_str());
  return function;
}

int attribute(CUfunction function, CUfunction_attribute which) {
  int value = 0;
  check(Driver::get().cuFuncGetAttribute(&value, which, function), "reading a function's attribute");
  return value;
}

/// Returns the most bytes of dynamic shared memory that a function can have on the current device, for messages.
std::string shared_maximum(CUfunction function) {
  const Driver& driver = Driver::get();
  CUdevice device = 0;
  int of_block = 0;
  if (driver.cuCtxGetDevice == nullptr || driver.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
      driver.cuDeviceGetAttribute(&of_block, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device) !=
          CUDA_SUCCESS) {
    return "an unknown number";
  }
  return std::to_string(of_block - attribute(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
}

}  // namespace

Module::Module(std::span<const std::byte> image, std::span<const std::string> lowered_names)
    : module_(load(image)), names_(lowered_names.begin(), lowered_names.end()), allowed_(lowered_names.size()) {
  try {
    for (const std::string& name : lowered_names) {
      functions_.push_back(name.empty() ? nullptr : find_function(module_, name));
      parameters_.push_back(parameter_sizes(image, name));
    }
  } catch (...) {
    Driver::get().cuModuleUnload(module_);
    throw;
  }
}

Module::~Module() {
  if (module_ != nullptr) Driver::find()->cuModuleUnload(module_);
}

Resources Module::resources(std::size_t index) const {
  const CUfunction function = functions_[index];
  if (function == nullptr) return {};
  return {.registers = attribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS),
          .spill_bytes = attribute(function, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
          .static_shared_bytes = attribute(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
          .max_threads = attribute(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)};
}

void Module::allow_shared(std::size_t index, std::int64_t bytes) {
  const CUfunction function = functions_[index];
  if (function == nullptr) return;
  const std::lock_guard lock(raising_);
  for (std::size_t i = 0; i < functions_.size(); ++i)  // passes with equal kernels share a function
    if (functions_[i] == function && bytes <= allowed_[i]) return;
  const CUresult result = Driver::get().cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                           static_cast<int>(bytes));
  if (result == CUDA_SUCCESS) {
    allowed_[index] = bytes;
    return;
  }
  check(result, ("allowing " + std::to_string(bytes) + " bytes of dynamic shared memory, where at most " +
                 shared_maximum(function) + " are to be had")
                    .c_str());
}

int Module::occupancy(std::size_t index, int threads, std::int64_t shared_bytes) const {
  int blocks = 0;
  if (functions_[index] == nullptr) return blocks;
  check(Driver::get().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, functions_[index], threads,
                                                                  static_cast<std::size_t>(shared_bytes)),
        "asking for a function's occupancy");
  return blocks;
}

std::shared_ptr<Module> Modules::find(const manifest::Digest& key) {
  const std::lock_guard lock(mutex_);
  const auto found = loaded_.find(key);
  return found == loaded_.end() ? nullptr : found->second.lock();
}

std::shared_ptr<Module> Modules::get(const manifest::Digest& key, const Cubin& cubin) {
  const std::lock_guard lock(mutex_);  // held while the module loads, so that no other thread loads the same cubin
  std::weak_ptr<Module>& kept = loaded_[key];
  if (auto loaded = kept.lock()) return loaded;
  auto loaded = std::make_shared<Module>(cubin.image, cubin.lowered_names);
  kept = loaded;
  return loaded;
}

}  // namespace kiln::jit
