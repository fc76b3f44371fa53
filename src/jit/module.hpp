// Cubins loaded into a context, with functions ready to launch.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
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
  /// Loads the cubin and its functions eagerly into the current context. An empty lowered name gives a null function.
  /// Throws Error(driver_failed).
  Module(std::span<const std::byte> image, std::span<const std::string> lowered_names);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  [[nodiscard]] CUfunction function(std::size_t index) const { return functions_[index]; }
  [[nodiscard]] const std::string& name(std::size_t index) const { return names_.at(index); }
  /// Bytes of each parameter, as parameter_sizes() returns them.
  [[nodiscard]] const std::optional<std::vector<std::int64_t>>& parameters(std::size_t index) const {
    return parameters_[index];
  }
  [[nodiscard]] Resources resources(std::size_t index) const;
  /// Raises the function's limit of dynamic shared memory to `bytes`. Never lowers it. Throws Error(driver_failed) with
  /// `bytes` and the maximum.
  void allow_shared(std::size_t index, std::int64_t bytes);
  /// Resident blocks per multiprocessor. Throws Error(driver_failed).
  [[nodiscard]] int occupancy(std::size_t index, int threads, std::int64_t shared_bytes) const;

 private:
  CUmodule module_ = nullptr;
  std::vector<std::string> names_;
  std::vector<CUfunction> functions_;
  std::vector<std::optional<std::vector<std::int64_t>>> parameters_;
  std::mutex raising_;
  std::vector<std::int64_t> allowed_;  // bytes of dynamic shared memory, by function
};

/// The modules loaded in one context, by cubin key. Plans that run the same machine code share one module, which is
/// unloaded with its last owner. Thread-safe.
class Modules {
 public:
  /// Returns the module loaded under this key, else null.
  [[nodiscard]] std::shared_ptr<Module> find(const manifest::Digest& key);
  /// Returns find(key), else loads the cubin into the current context. Throws as Module does.
  [[nodiscard]] std::shared_ptr<Module> get(const manifest::Digest& key, const Cubin& cubin);

 private:
  std::mutex mutex_;
  std::map<manifest::Digest, std::weak_ptr<Module>> loaded_;
};

}  // namespace kiln::jit
