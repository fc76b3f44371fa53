#include "tune/runner_up.hpp"

#include <algorithm>

namespace kiln::tune {

std::optional<RunnerUp> runner_up_of(const spec::Op& op, const Problem& at, const spec::DeviceFacts& device,
                                     std::string_view key, std::span<const store::Record> beside) {
  const auto found = std::ranges::find(beside, spec::runner_up_key(key), &store::Record::key);
  if (found == beside.end()) return std::nullopt;
  Usable served = usable(op, at, device, *found);
  if (served.implementation == nullptr || served.implementation->is_library()) return std::nullopt;
  return RunnerUp{at, *found, std::move(served)};
}

}  // namespace kiln::tune
