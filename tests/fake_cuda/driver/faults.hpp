// What is to go wrong, and the counts that tell whether it did.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/driver_types.hpp"

namespace fake_cuda {

/// The code of a number or a name such as CUDA_ERROR_OUT_OF_MEMORY.
std::optional<CUresult> parse_result(std::string_view text);

struct KernelFault {
  enum class Kind : std::uint8_t { wrong, hasty, peeks, fault, hang, interrupt, slow, odd, prompt } kind = Kind::wrong;
  double factor = 1;
  std::string pattern;
};

class Faults {
 public:
  /// Statements that begin with fail, module, launch, kernel, time, hold or heal; false for any other.
  bool obey(std::string_view statement);

  /// Counts the call; the code that it is to fail with, if it is.
  std::optional<CUresult> on_call(std::string_view function);
  /// The time that an elapsed one is told as.
  float on_time(float milliseconds);
  [[nodiscard]] bool holds(std::string_view function) const;
  std::optional<CUresult> on_module(std::span<const std::string> kernels);
  /// The code with which a launch of the kernel is refused, if it is.
  std::optional<CUresult> on_refusal(std::string_view kernel);
  /// Those that this launch meets.
  std::vector<KernelFault> on_launch(std::string_view kernel);

  [[nodiscard]] std::int64_t calls(std::string_view function) const;
  [[nodiscard]] std::int64_t effective() const noexcept { return effective_; }

 private:
  struct CallFault {
    std::string function;
    CUresult code = CUDA_SUCCESS;
    std::int64_t calls_left = 1;  // until it strikes
    bool sticky = false;
  };
  struct Refusal {
    CUresult code = CUDA_SUCCESS;
    std::string pattern;
  };
  bool obey_fail(std::span<const std::string_view> words);
  bool obey_kernel(std::span<const std::string_view> words, std::string_view statement);

  std::vector<CallFault> calls_to_fail_;
  std::vector<Refusal> modules_, launches_;
  std::vector<std::string> held_;
  std::vector<KernelFault> kernels_;
  std::map<std::string, std::int64_t, std::less<>> calls_;
  std::int64_t effective_ = 0;
  double false_time_ = 0;
  std::int64_t false_time_every_ = 0, times_ = 0;  // 0: all are true
};

}  // namespace fake_cuda
