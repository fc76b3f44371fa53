#include "team_probe/member.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kiln/error.hpp"

namespace kiln::bench {

extern const char* const kernels_text;  // kernels.cuh, filled in by the build

namespace {

const std::vector<std::string> kernel_names = {
    "fill",
    "count_wrong",
    "push_bulk_constant",
    "push_bulk_copy_2",
    "push_bulk_copy_4",
    "push_bulk_copy_6",
    "push_bulk_copy_12",
    "push_bulk_copy_16",
    "push_bulk_copy_24",
    "push_bulk_copy_32",
    "push_vector_constant",
    "push_vector_copy",
    "write_for",
    "exchange_flag",
    "exchange_2k",
    "exchange_16k",
    "exchange_16k_checked",
};

}  // namespace

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else if (static_cast<unsigned char>(c) >= ' ') {
      result += c;
    }
  }
  return result;
}

std::string name_of(CUresult result) {
  const char* name = nullptr;
  cuda::Driver::get().cuGetErrorName(result, &name);
  return name != nullptr ? name : fmt::format("CUDA error {}", static_cast<unsigned>(result));
}

jit::Cubin compile_kernels(const std::string& arch) {
  jit::Specialisation specialisation;
  specialisation.label = "bench_team_probe";
  specialisation.entry = "kernels.cuh";
  specialisation.files = std::vector<manifest::SourceFile>{{"kernels.cuh", kernels_text}};
  specialisation.arch = arch;
  return jit::compile(specialisation);
}

Member::Member(int rank_, int ordinal, const Link& link_, std::size_t bytes)
    : rank(rank_),
      link(link_),
      context(ordinal),
      own(PeerMemory::create(bytes, ordinal)),
      peers(exchange_memory(ordinal)) {
  const jit::Cubin cubin = compile_kernels(jit::default_arch(context.info().facts.sm()));
  module.emplace(cubin.image, kernel_names);
  cuda::check(cuda::Driver::get().cuMemsetD8Async(own.pointer(), 0, own.bytes(), stream.handle()), "cuMemsetD8Async");
  stream.synchronize();
  link.meet();
}

PeerMemory Member::exchange_memory(int ordinal) const {
  const int exported = own.descriptor();
  link.send_descriptor(exported);
  const int received = link.receive_descriptor();
  PeerMemory memory = PeerMemory::import(received, own.bytes(), ordinal);
  close(exported);
  close(received);
  return memory;
}

void Member::launch_with(const std::string& kernel, Grid grid, void** arguments) const {
  const auto found = std::find(kernel_names.begin(), kernel_names.end(), kernel);
  if (found == kernel_names.end()) throw Error(ErrorKind::bad_input, "there is no kernel " + kernel);
  const auto index = static_cast<std::size_t>(found - kernel_names.begin());
  CUfunction function = module->function(index);
  const cuda::Driver& driver = cuda::Driver::get();
  cuda::check(driver.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                        static_cast<int>(grid.shared_bytes)),
              "raising a kernel's limit of shared memory");
  cuda::check(driver.cuLaunchKernel(function, grid.blocks, 1, 1, grid.threads, 1, 1, grid.shared_bytes, stream.handle(),
                                    arguments, nullptr),
              kernel.c_str());
}

void Member::fill(CUdeviceptr pointer, std::size_t bytes, unsigned seed) const {
  launch("fill", {132, 512, 0}, pointer, static_cast<unsigned long long>(bytes / 16), seed);
}

std::int64_t Member::wrong_words(CUdeviceptr pointer, std::size_t bytes, unsigned seed, CUresult& result) const {
  const cuda::Buffer count(16);
  count.fill_bytes(0, stream.handle());
  launch("count_wrong", {132, 512, 0}, pointer, static_cast<unsigned long long>(bytes / 16), seed, count.pointer());
  unsigned wrong = 0;
  result = synchronize();
  if (result == CUDA_SUCCESS) result = cuda::Driver::get().cuMemcpyDtoH_v2(&wrong, count.pointer(), sizeof wrong);
  return wrong;
}

double Member::once_ns(const std::function<void()>& work, int repetitions) const {
  const cuda::Event begin, end;
  begin.record(stream.handle());
  for (int i = 0; i < repetitions; ++i) work();
  end.record(stream.handle());
  end.synchronize();
  return cuda::Event::elapsed_ns(begin, end) / repetitions;
}

double Member::median_ns(const std::function<void()>& work) const {
  work();
  stream.synchronize();
  constexpr double lasts_ns = 2e6;
  const int repetitions =
      std::clamp(static_cast<int>(std::ceil(lasts_ns / std::max(once_ns(work, 1), 100.0))), 1, 1000);
  std::array<double, 5> samples{};
  for (double& sample : samples) sample = once_ns(work, repetitions);
  std::nth_element(samples.begin(), samples.begin() + 2, samples.end());
  return samples[2];
}

}  // namespace kiln::bench
