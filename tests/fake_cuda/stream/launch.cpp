// Kernel launches: what the driver checks at once, and what the host twin does when the launch runs.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <thread>

#include "driver/control.hpp"
#include "driver/entry.hpp"
#include "twins/twin.hpp"

using fake_cuda::entry_in_context;
using fake_cuda::Failure;
using fake_cuda::Invocation;
using fake_cuda::Machine;
using fake_cuda::require;
using fake_cuda::resolve;

namespace {

struct Attributes {
  std::int64_t cluster = 1;  // blocks
  bool cooperative = false;
  bool programmatic = false;
};

Attributes read_attributes(const CUlaunchConfig& config) {
  Attributes read;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) read.cooperative = attribute.value.cooperative != 0;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      read.programmatic = attribute.value.programmaticStreamSerializationAllowed != 0;
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    const auto& size = attribute.value.clusterDim;
    constexpr unsigned most = 1024;  // of one dimension: far more than any device has, so that the product is a number
    require(size.x <= most && size.y <= most && size.z <= most, CUDA_ERROR_INVALID_CLUSTER_SIZE);
    read.cluster = std::int64_t{size.x} * size.y * size.z;
    require(read.cluster >= 1 && config.gridDimX % size.x == 0 && config.gridDimY % size.y == 0 &&
                config.gridDimZ % size.z == 0,
            CUDA_ERROR_INVALID_CLUSTER_SIZE);
  }
  return read;
}

void check_geometry(const CUlaunchConfig& config, const CUfunc_st& function, const Attributes& attributes,
                    const Machine& machine) {
  require(config.gridDimX <= INT32_MAX && config.gridDimY <= 65535 && config.gridDimZ <= 65535 &&
              config.blockDimX <= 1024 && config.blockDimY <= 1024 && config.blockDimZ <= 64,
          CUDA_ERROR_INVALID_VALUE);
  const std::int64_t blocks = std::int64_t{config.gridDimX} * config.gridDimY * config.gridDimZ;
  const std::int64_t threads = std::int64_t{config.blockDimX} * config.blockDimY * config.blockDimZ;
  require(blocks > 0 && threads > 0, CUDA_ERROR_INVALID_VALUE);
  require(threads <= std::min<std::int64_t>(1024, function.kernel.max_threads), CUDA_ERROR_INVALID_VALUE);
  require(config.sharedMemBytes <= function.max_dynamic_shared, CUDA_ERROR_INVALID_VALUE);
  const std::int64_t resident = fake_cuda::occupancy(function.kernel, threads, config.sharedMemBytes);
  require(resident > 0, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  const bool is_plain = attributes.cluster == 1 && !attributes.programmatic;
  require(is_plain || machine.settings.sm >= 90, CUDA_ERROR_NOT_SUPPORTED);
  require(attributes.cluster <= (function.any_cluster_size ? 16 : 8), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  require(!attributes.cooperative || blocks <= resident * machine.settings.multiprocessors,
          CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

/// A launch on its own: the caller's parameters do not outlive the call.
struct Launch {
  fake_cuda::KernelName name;
  fake_cuda::Geometry geometry;
  std::vector<std::vector<std::byte>> parameters;
  bool programmatic = false;
};

Launch copy_launch(const CUlaunchConfig& config, const CUfunc_st& function, const Attributes& attributes,
                   void** parameters) {
  Launch launch{function.name, {}, {}, attributes.programmatic};
  launch.geometry.grid = {config.gridDimX, config.gridDimY, config.gridDimZ};
  launch.geometry.block = {config.blockDimX, config.blockDimY, config.blockDimZ};
  launch.geometry.cluster = attributes.cluster;
  launch.geometry.dynamic_shared = config.sharedMemBytes;
  require(parameters != nullptr || function.kernel.parameters.empty(), CUDA_ERROR_INVALID_VALUE);
  for (std::size_t i = 0; i < function.kernel.parameters.size(); ++i) {
    require(parameters[i] != nullptr, CUDA_ERROR_INVALID_VALUE);
    const auto* bytes = static_cast<const std::byte*>(parameters[i]);
    launch.parameters.emplace_back(bytes, bytes + function.kernel.parameters[i]);
  }
  return launch;
}

/// Changes the first element of the first tensor that the kernel may write.
void write_wrong_value(const Machine& machine, const Launch& launch) {
  for (std::size_t i = 0; i < launch.parameters.size() && i < launch.name.parameters.size(); ++i) {
    const std::string& type = launch.name.parameters[i];
    if (!type.ends_with('*') || type.ends_with("const*")) continue;
    CUdeviceptr pointer = 0;
    std::memcpy(&pointer, launch.parameters[i].data(), sizeof pointer);
    const std::int64_t bytes = fake_cuda::element_bytes(type.substr(0, type.size() - 1));
    machine.heap.at(pointer, bytes, CUDA_ERROR_ILLEGAL_ADDRESS)[bytes - 1] ^= std::byte{0x41};  // sign aside, far off
    return;
  }
}

/// The same for the same launch of the same process, so that tests repeat.
double noise_of(std::string_view kernel, std::int64_t times, double amplitude) {
  std::uint64_t hash =
      std::hash<std::string_view>{}(kernel) + static_cast<std::uint64_t>(times) * 0x9e3779b97f4a7c15ULL;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
  return 1 + amplitude * (static_cast<double>(hash >> 11) * 0x1p-52 - 1);
}

double time_of(const fake_cuda::Traffic& traffic) {
  return fake_cuda::launch_ns +
         std::max(traffic.bytes / fake_cuda::memory_bytes_per_ns, traffic.flops / fake_cuda::flops_per_ns) /
             traffic.efficiency;
}

CUstream_st::Overwritten overwritten_by(const Invocation& call) {
  if (call.name.base != "copy_late") return {};
  const std::int64_t count = call.integer(2);
  const auto* words = call.required<std::int32_t>(0, count);
  return {call.value<CUdeviceptr>(0), {words, words + count}};
}

void swap(const Machine& machine, CUstream_st::Overwritten& words) {
  const auto bytes = static_cast<std::int64_t>(words.before.size() * sizeof(std::int32_t));
  auto* memory = reinterpret_cast<std::int32_t*>(machine.heap.at(words.at, bytes, CUDA_ERROR_ILLEGAL_ADDRESS));
  std::swap_ranges(words.before.begin(), words.before.end(), memory);
}

void run(Machine& machine, CUstream_st& stream, const Launch& launch) {
  CUctx_st& context = *stream.context;
  if (context.broken != CUDA_SUCCESS) return;
  try {
    const fake_cuda::Twin* twin = fake_cuda::find_twin(launch.name.base);
    require(twin != nullptr, CUDA_ERROR_NOT_SUPPORTED);
    const std::int64_t times = ++machine.launches[launch.name.full];
    double ns = 0;
    const std::vector<fake_cuda::KernelFault> faults = machine.faults.on_launch(launch.name.full);
    for (const fake_cuda::KernelFault& fault : faults) {
      require(fault.kind != fake_cuda::KernelFault::Kind::fault, CUDA_ERROR_ILLEGAL_ADDRESS);
      while (fault.kind == fake_cuda::KernelFault::Kind::hang) pause();
      if (fault.kind == fake_cuda::KernelFault::Kind::interrupt) static_cast<void>(std::raise(SIGINT));
    }
    const bool early = launch.programmatic && stream.behind_kernel;
    const bool peeks = early && stream.overwritten.at != 0 &&
                       std::any_of(faults.begin(), faults.end(), [](const fake_cuda::KernelFault& fault) {
                         return fault.kind == fake_cuda::KernelFault::Kind::peeks;
                       });
    const Invocation call(launch.name, launch.geometry, launch.parameters, machine.heap, machine.settings);
    CUstream_st::Overwritten overwritten = overwritten_by(call);
    if (peeks) swap(machine, stream.overwritten);
    ns = time_of(twin->run(call));
    if (peeks) swap(machine, stream.overwritten);
    stream.overwritten = std::move(overwritten);
    if (early) ns -= static_cast<double>(machine.settings.overlap);
    for (const fake_cuda::KernelFault& fault : faults) {
      const bool hasty = early && fault.kind == fake_cuda::KernelFault::Kind::hasty;
      if (hasty || fault.kind == fake_cuda::KernelFault::Kind::wrong) write_wrong_value(machine, launch);
      const bool prompt = launch.programmatic && fault.kind == fake_cuda::KernelFault::Kind::prompt;
      const bool odd = launch.geometry.blocks() % 2 == 1 && fault.kind == fake_cuda::KernelFault::Kind::odd;
      if (prompt || odd || fault.kind == fake_cuda::KernelFault::Kind::slow) ns *= fault.factor;
    }
    advance(machine, stream, ns * noise_of(launch.name.full, times, machine.settings.noise));
    stream.behind_kernel = true;
  } catch (const Failure& failure) {
    context.broken = failure.result;  // found by the calls that follow, as on a device
  }
}

/// With launches that block, waits until the host has written the word that the stream waits for.
void wait_behind(Machine& machine, CUstream_st& stream) {
  if (machine.settings.blocking == 0 || stream.capture || !machine.host_memory.contains(stream.awaited)) return;
  const std::atomic_ref<std::uint32_t> word(*stream.awaited);
  if (word.load() < stream.awaited_value) ++machine.blocked_launches;
  while (word.load() < stream.awaited_value) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  stream.awaited = nullptr;
}

void launch_kernel(Machine& machine, CUctx_st& context, const CUlaunchConfig& config, CUfunction handle,
                   void** parameters) {
  if (machine.settings.footprint > 0)
    return machine.footprint.walk(static_cast<std::size_t>(machine.settings.footprint));
  CUfunc_st& function = resolve(machine, handle);
  require(function.module->context == &context, CUDA_ERROR_INVALID_HANDLE);  // as driver 580 says it
  load(machine, function);
  const Attributes attributes = read_attributes(config);
  check_geometry(config, function, attributes, machine);
  if (const auto refused = machine.faults.on_refusal(function.name.full)) throw Failure{*refused};
  if (fake_cuda::find_twin(function.name.base) == nullptr) {
    std::fprintf(stderr, "fake_cuda: no host twin for %s; add one under tests/fake_cuda/twins\n",
                 function.name.full.c_str());
    throw Failure{CUDA_ERROR_NOT_SUPPORTED};
  }
  wait_behind(machine, resolve(machine, context, config.hStream));
  enqueue(machine, context, config.hStream,
          [launch = copy_launch(config, function, attributes, parameters)](Machine& on, CUstream_st& stream) {
            run(on, stream, launch);
          });
}

}  // namespace

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  std::int64_t pause = 0;
  const CUresult result = entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    require(config != nullptr && extra == nullptr, CUDA_ERROR_INVALID_VALUE);
    launch_kernel(machine, context, *config, function, parameters);
    pause = machine.settings.pause;
  });
  if (pause > 0) std::this_thread::sleep_for(std::chrono::microseconds(pause));
  return result;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                        CUstream stream, void** parameters, void** extra) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    require(extra == nullptr, CUDA_ERROR_INVALID_VALUE);
    launch_kernel(machine, context,
                  {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, nullptr, 0}, function,
                  parameters);
  });
}

unsigned fake_cuda_launch(const char* name, CUstream stream, const void* parameter, std::size_t bytes) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    Launch launch{{name, std::string(name).substr(0, std::string_view(name).find('<')), {}, {}}, {}, {}, false};
    require(fake_cuda::find_twin(launch.name.base) != nullptr, CUDA_ERROR_NOT_FOUND);
    if (machine.library_kernels.insert(name).second) forbid_while_capturing(machine);
    const auto* from = static_cast<const std::byte*>(parameter);
    launch.parameters.emplace_back(from, from + bytes);
    enqueue(machine, context, stream,
            [launch = std::move(launch)](Machine& on, CUstream_st& run_on) { run(on, run_on, launch); });
  });
}
