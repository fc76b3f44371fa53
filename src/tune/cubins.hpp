// Where machine code comes from: the file's layers if they may supply it, else NVRTC.
#pragma once

#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "jit/compile_pool.hpp"
#include "jit/specialisation.hpp"
#include "store/layers.hpp"

namespace kiln::tune {

/// A cubin and the key that it was found or compiled under.
struct KeyedCubin {
  manifest::Digest key{};
  std::string compiler;
  jit::Cubin cubin;
  bool from_store = false;
};

/// Thread-safe, like what it stands on. Of what a library computes it gives an empty cubin, with the library as its compiler, wherever
/// the library is here.
class Cubins {
 public:
  Cubins(store::Layers& layers, jit::CompilePool& pool) : layers_(layers), pool_(pool) {}

  /// From a trusted layer: under this machine's compiler, or, where there is no NVRTC, under any compiler that a layer names.
  [[nodiscard]] std::optional<KeyedCubin> find(const jit::Specialisation& specialisation,
                                               store::Counters* met = nullptr);
  /// Whether machine code that this compiler made may serve: it is this machine's own, or this machine has none.
  [[nodiscard]] bool accepts(std::string_view compiler) { return own_compiler().empty() || own_compiler() == compiler; }
  /// From a trusted layer, under this compiler alone.
  [[nodiscard]] std::optional<KeyedCubin> find_under(std::string_view compiler,
                                                     const jit::Specialisation& specialisation,
                                                     store::Counters* met = nullptr);
  [[nodiscard]] std::size_t compiles_at_once() const noexcept { return pool_.at_once(); }
  /// Begins a compile unless a layer has it, so that a later get() need not wait. Never throws for a template that does not compile.
  void prefetch(const jit::Specialisation& specialisation);
  /// Throws Error(no_nvrtc) when it must compile and cannot, Error(compile_failed) with the log.
  [[nodiscard]] KeyedCubin get(const jit::Specialisation& specialisation);
  /// get(), and the overlay keeps it.
  KeyedCubin get_and_keep(const jit::Specialisation& specialisation);
  /// The same where find() gave nothing.
  KeyedCubin compile_and_keep(const jit::Specialisation& specialisation);
  /// Whether there is an NVRTC.
  [[nodiscard]] bool can_compile() { return !own_compiler().empty(); }
  /// For a cubin that a layer had and the driver refused: compiles it afresh, and the overlay keeps that one.
  KeyedCubin replace(const jit::Specialisation& specialisation);

  [[nodiscard]] store::Layers& layers() noexcept { return layers_; }
  [[nodiscard]] std::int64_t compiled() const noexcept { return pool_.compiled(); }

 private:
  KeyedCubin compile(const jit::Specialisation& specialisation);
  /// Empty when this machine has no NVRTC.
  const std::string& own_compiler();

  store::Layers& layers_;
  jit::CompilePool& pool_;
  std::once_flag once_;
  std::string compiler_;
};

store::CubinRow to_row(const jit::Specialisation& specialisation, const KeyedCubin& cubin);

}  // namespace kiln::tune
