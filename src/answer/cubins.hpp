// Supplies machine code: from a trusted layer of the cache, else compiled by NVRTC.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "jit/compile_pool.hpp"
#include "jit/specialisation.hpp"
#include "store/layers.hpp"

namespace kiln::answer {

/// A cubin with its key and compiler.
struct KeyedCubin {
  manifest::Digest key{};  // jit::cubin_key(), under whichever key a layer has it
  std::string compiler;
  jit::Cubin cubin;
  std::optional<std::size_t>
      layer;  // that it was found in, as an index of store::Layers::layers(); nothing where it was compiled
};

/// Thread-safe. For a library's specialisation it returns an empty cubin with the library as compiler, and nothing
/// where the library is missing.
class Cubins {
 public:
  Cubins(store::Layers& layers, jit::CompilePool& pool) : layers_(layers), pool_(pool) {}

  /// Returns the cubin of a trusted layer, by this machine's compiler or, without NVRTC, by any compiler that a layer
  /// names: what tunes time, so that no candidate gains by its compiler. Counts failures in `met`.
  [[nodiscard]] std::optional<KeyedCubin> find(const jit::Specialisation& specialisation,
                                               store::Counters* met = nullptr);
  /// Returns what a launch loads: the cubin of a trusted layer by this machine's compiler, else by `recorded` (a
  /// record's, or empty), else by any compiler that a layer names. Counts failures in `met`.
  [[nodiscard]] std::optional<KeyedCubin> find_serving(const jit::Specialisation& specialisation,
                                                       std::string_view recorded, store::Counters* met = nullptr);
  /// Whether find_serving() has a cubin to read by this machine's compiler or by `recorded`. Reads none.
  [[nodiscard]] bool holds(const jit::Specialisation& specialisation, std::string_view recorded);
  [[nodiscard]] std::size_t compiles_at_once() const noexcept { return pool_.at_once(); }
  /// Begins a compile unless find() would find the cubin. Does not throw for a template that fails to compile: get()
  /// does.
  void prefetch(const jit::Specialisation& specialisation, jit::Urgency urgency = jit::Urgency::now);
  /// The same, unless find_serving() would find the cubin.
  void prefetch_serving(const jit::Specialisation& specialisation, std::string_view recorded);
  /// Begins a compile that no launch waits for, without a look-up. Throws Error(compile_failed) for refused sources.
  /// Precondition: can_compile() and kernels.
  [[nodiscard]] std::shared_future<jit::Cubin> begin_spare(const jit::Specialisation& specialisation);
  /// Stores what begin_spare() gave in the overlay.
  void keep(const jit::Specialisation& specialisation, const jit::Cubin& cubin);
  /// Returns the cubin of a layer, else compiles it. Throws Error(no_nvrtc) or Error(no_cublaslt) when it cannot, and
  /// Error(compile_failed) with the log.
  [[nodiscard]] KeyedCubin get(const jit::Specialisation& specialisation);
  /// get(), and stores a compiled cubin in the overlay.
  KeyedCubin get_and_keep(const jit::Specialisation& specialisation);
  /// Returns what find_serving() finds, else compile_and_keep().
  KeyedCubin get_serving_and_keep(const jit::Specialisation& specialisation);
  /// Compiles without a look-up, and stores the cubin in the overlay. Calls `begun`, where there is one, when the
  /// compile has its place among those that wait. Throws as get() does.
  KeyedCubin compile_and_keep(const jit::Specialisation& specialisation, const std::function<void()>& begun = {});
  /// Whether this machine has NVRTC, and the pool may use it.
  [[nodiscard]] bool can_compile() { return !own_compiler().empty(); }
  /// Returns jit::compiler_identity(), or an empty string where can_compile() is false.
  [[nodiscard]] const std::string& own_compiler();
  /// Notes that the driver refuses what files have under the key. Look-ups that meet it find nothing until it is
  /// compiled anew, which replaces it in the overlay; where nothing can be compiled they go on finding it. Returns
  /// whether it is the first time of this key.
  bool note_refused(const manifest::Digest& key);
  /// Whether find_serving() passes over machine code that the driver refused.
  [[nodiscard]] bool passes_over(const jit::Specialisation& specialisation, std::string_view recorded);

  [[nodiscard]] store::Layers& layers() noexcept { return layers_; }
  [[nodiscard]] std::int64_t compiled() const noexcept { return pool_.compiled(); }

 private:
  /// Returns the cubin that this compiler made, from a trusted layer.
  std::optional<KeyedCubin> find_under(std::string_view compiler, const jit::Specialisation& specialisation,
                                       store::Counters* met);
  void begin_compile_unless(const std::function<bool()>& is_found, const jit::Specialisation& specialisation,
                            jit::Urgency urgency);
  KeyedCubin compile(const jit::Specialisation& specialisation, const std::function<void()>& begun = {});
  /// Stores a compiled cubin in the overlay, in place of one that the driver refused.
  void put(const jit::Specialisation& specialisation, const KeyedCubin& cubin);
  [[nodiscard]] bool has_refused();
  [[nodiscard]] bool is_passed_over(const jit::Specialisation& specialisation, std::string_view compiler);
  /// Returns jit::compiler_identity(). Throws Error(no_nvrtc) that says why no file supplies the machine code.
  std::string compiler_for(const jit::Specialisation& specialisation);

  store::Layers& layers_;
  jit::CompilePool& pool_;
  std::once_flag once_;
  std::string compiler_;
  std::mutex refused_mutex_;
  std::map<manifest::Digest, bool> refused_;  // keys of cubins that the driver refused; false: compiled anew since
};

/// Returns the first layer that has this machine code and may not supply it.
std::optional<std::size_t> untrusted_layer_with(const store::Layers& layers, const jit::Specialisation& specialisation);

store::CubinRow to_row(const jit::Specialisation& specialisation, const KeyedCubin& cubin);

}  // namespace kiln::answer
