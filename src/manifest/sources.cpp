#include "manifest/sources.hpp"

#include <map>
#include <mutex>

namespace kiln::manifest {

struct Sources::Shared {
  explicit Shared(std::vector<SourceFile> list) : files(std::move(list)) {}
  const std::vector<SourceFile> files;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const Finding>> kept;
};

Sources::Sources(std::vector<SourceFile> files) : shared_(std::make_shared<Shared>(std::move(files))) {}

const std::vector<SourceFile>& Sources::files() const noexcept { return shared_->files; }

std::shared_ptr<const Sources::Finding> Sources::kept(const std::string& name) const {
  const std::lock_guard lock(shared_->mutex);
  const auto found = shared_->kept.find(name);
  return found != shared_->kept.end() ? found->second : nullptr;
}

void Sources::keep(const std::string& name, std::shared_ptr<const Finding> finding) const {
  const std::lock_guard lock(shared_->mutex);
  shared_->kept.insert_or_assign(name, std::move(finding));
}

}  // namespace kiln::manifest
