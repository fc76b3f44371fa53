// One of the two processes of bench_team_probe: its device, its kernels, its memory and the other's.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/shared_allocation.hpp"
#include "jit/module.hpp"
#include "row.hpp"
#include "team_probe/link.hpp"

namespace kiln::bench {

/// Prints one JSON object a line: {"bench":"team_probe","probe":NAME,FIELDS}.
template <typename... Values>
void print_line(const std::string& probe, fmt::format_string<Values...> fields, Values&&... values) {
  fmt::print("{},\"probe\":\"{}\",{}}}\n", ::bench::compiled_row("team_probe"), probe,
             fmt::format(fields, std::forward<Values>(values)...));
  std::fflush(stdout);
}
/// `text` as a JSON string without quotation marks around it.
std::string escaped(const std::string& text);
/// "CUDA_SUCCESS"
std::string name_of(CUresult result);

/// All kernels of kernels.cuh, for a target such as "sm_90a". Throws Error(compile_failed).
jit::Cubin compile_kernels(const std::string& arch);

struct Grid {
  unsigned blocks = 1, threads = 1, shared_bytes = 0;
};

class Member {
 public:
  /// Makes `ordinal`'s context current, loads the kernels, and shares `bytes` of memory with the other process.
  Member(int rank_, int ordinal, const Link& link_, std::size_t bytes);

  /// Precondition: each argument has the size of the kernel's parameter in its place.
  template <typename... Arguments>
  void launch(const std::string& kernel, Grid grid, Arguments... arguments) const {
    void* pointers[] = {&arguments...};
    launch_with(kernel, grid, pointers);
  }
  CUresult synchronize() const { return cuda::Driver::get().cuStreamSynchronize(stream.handle()); }
  /// Words of `pointer` that do not hold fill's pattern; the result of the first call that failed, if any, in `result`.
  std::int64_t wrong_words(CUdeviceptr pointer, std::size_t bytes, unsigned seed, CUresult& result) const;
  void fill(CUdeviceptr pointer, std::size_t bytes, unsigned seed) const;
  /// Nanoseconds of one `work`: the median of 5 timings, each of as many repetitions as take 2 ms.
  double median_ns(const std::function<void()>& work) const;
  /// Nanoseconds of one `work` out of `repetitions` that follow on each other, timed once.
  double once_ns(const std::function<void()>& work, int repetitions) const;

  int rank;
  const Link& link;
  cuda::Context context;
  cuda::Context::Scope scope{context};
  cuda::Stream stream;
  std::optional<jit::Module> module;
  cuda::SharedAllocation own;
  cuda::SharedAllocation peers;

 private:
  void launch_with(const std::string& kernel, Grid grid, void** arguments) const;
  [[nodiscard]] cuda::SharedAllocation exchange_memory(int ordinal) const;
};

}  // namespace kiln::bench
