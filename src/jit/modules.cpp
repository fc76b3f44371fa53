#include "jit/modules.hpp"

namespace kiln::jit {

std::shared_ptr<Module> Modules::find(const manifest::Digest& key) {
  const std::lock_guard lock(mutex_);
  const auto found = loaded_.find(key);
  return found == loaded_.end() ? nullptr : found->second.lock();
}

std::shared_ptr<Module> Modules::get(const manifest::Digest& key, const Cubin& cubin) {
  const std::lock_guard lock(mutex_);  // while it loads, so that nobody loads it beside
  std::weak_ptr<Module>& kept = loaded_[key];
  if (auto loaded = kept.lock()) return loaded;
  auto loaded = std::make_shared<Module>(cubin.image, cubin.lowered_names);
  kept = loaded;
  return loaded;
}

}  // namespace kiln::jit
