// Loaded modules, shared by the plans that run the same machine code.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "jit/module.hpp"

namespace kiln::jit {

/// Of one context, by cubin key. Buckets that differ in sizes alone often ask for the same specialisation: its code then lies once on the
/// device. A module is unloaded when nothing holds it any more. Thread-safe.
class Modules {
 public:
  /// Null when none is loaded under this key.
  [[nodiscard]] std::shared_ptr<Module> find(const manifest::Digest& key);
  /// find(), else loaded now into the current context. Throws as Module does.
  [[nodiscard]] std::shared_ptr<Module> get(const manifest::Digest& key, const Cubin& cubin);

 private:
  std::mutex mutex_;
  std::map<manifest::Digest, std::weak_ptr<Module>> loaded_;
};

}  // namespace kiln::jit
