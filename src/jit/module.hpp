// A cubin loaded into the current context: functions ready to launch, nothing left to load lazily.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuda/driver_api.hpp"
#include "jit/specialisation.hpp"

namespace kiln::jit {

/// Thread-safe.
class Module {
 public:
  /// Loads eagerly; names are lowered names, an empty one gives a null function. Throws Error(driver_failed).
  Module(std::span<const std::byte> image, std::span<const std::string> lowered_names);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  [[nodiscard]] CUfunction function(std::size_t index) const { return functions_[index]; }
  [[nodiscard]] const std::string& name(std::size_t index) const { return names_.at(index); }
  /// Bytes of each parameter, where the cubin tells (parameter_sizes).
  [[nodiscard]] const std::optional<std::vector<std::int64_t>>& parameters(std::size_t index) const {
    return parameters_[index];
  }
  [[nodiscard]] Resources resources(std::size_t index) const;
  /// Raises the function's dynamic shared memory limit to this where it is lower. Throws Error(driver_failed) naming the bytes and the maximum.
  void allow_shared(std::size_t index, std::int64_t bytes);
  /// Resident blocks a multiprocessor.
  [[nodiscard]] int occupancy(std::size_t index, int threads, std::int64_t shared_bytes) const;

 private:
  CUmodule module_ = nullptr;
  std::vector<std::string> names_;
  std::vector<CUfunction> functions_;
  std::vector<std::optional<std::vector<std::int64_t>>> parameters_;
  std::mutex raising_;
  std::vector<std::int64_t> allowed_;  // bytes of dynamic shared memory, by function
};

}  // namespace kiln::jit
