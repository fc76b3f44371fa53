// A cubin loaded into the current context: functions ready to launch, nothing left to load lazily.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cuda/driver_api.hpp"
#include "jit/specialisation.hpp"

namespace kiln::jit {

class Module {
 public:
  /// Loads eagerly; names are lowered names, an empty one gives a null function. Throws Error(driver_failed).
  Module(std::span<const std::byte> image, std::span<const std::string> lowered_names);
  ~Module();
  Module(Module&& other) noexcept;
  Module& operator=(Module&& other) noexcept;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  [[nodiscard]] CUfunction function(std::size_t index) const { return functions_[index]; }
  [[nodiscard]] Resources resources(std::size_t index) const;
  /// Raises the function's dynamic shared memory limit. Throws Error(driver_failed) naming the bytes and the maximum.
  void allow_shared(std::size_t index, std::int64_t bytes);
  /// Resident blocks a multiprocessor.
  [[nodiscard]] int occupancy(std::size_t index, int threads, std::int64_t shared_bytes) const;

 private:
  CUmodule module_ = nullptr;
  std::vector<CUfunction> functions_;
};

}  // namespace kiln::jit
