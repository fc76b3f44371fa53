#include "tune/runner_up.hpp"

#include <algorithm>
#include <utility>

namespace kiln::tune {

std::optional<RunnerUp> runner_up_of(const spec::Op& op, const Problem& at, const spec::DeviceFacts& device,
                                     std::string_view key, std::span<const store::Record> beside) {
  const auto found = std::ranges::find(beside, spec::runner_up_key(key), &store::Record::key);
  if (found == beside.end()) return std::nullopt;
  Usable served = usable(op, at, device, *found);
  if (served.implementation == nullptr || served.implementation->is_library()) return std::nullopt;
  return RunnerUp{at, *found, std::move(served)};
}

Answer answer_of(const spec::Op& op, const Problem& at, const spec::DeviceFacts& device, const store::Record& stored,
                 std::span<const store::Record> beside) {
  Answer answer{stored, usable(op, at, device, stored), {}, {}, {}};
  const bool usable_itself = answer.usable.implementation != nullptr;
  if (usable_itself && !answer.usable.implementation->is_library()) return answer;
  answer.runner_up = runner_up_of(op, at, device, stored.key, beside);
  if (!usable_itself && answer.runner_up) pass_over(answer, std::move(answer.usable.why_not));
  return answer;
}

void pass_over(Answer& answer, std::string why) {
  answer.why_passed_over = std::move(why);
  answer.passed_over = std::exchange(answer.record, std::move(answer.runner_up->record));
  answer.usable = std::move(answer.runner_up->usable);
  answer.runner_up.reset();
}

}  // namespace kiln::tune
