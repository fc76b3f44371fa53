#include "tune/preparation.hpp"

#include <fmt/format.h>

#include <limits>
#include <map>

#include "cuda/device.hpp"
#include "kiln/error.hpp"

namespace kiln::tune {
namespace {

/// Appends seed and case, whose slots come after those of the op. Kernel arguments take the seed as a positive number.
std::vector<std::int64_t> with_case(std::span<const std::int64_t> frame, std::uint64_t seed, std::size_t prepare_case) {
  std::vector<std::int64_t> more(frame.begin(), frame.end());
  more.push_back(static_cast<std::int64_t>(seed & std::numeric_limits<std::int64_t>::max()));
  more.push_back(static_cast<std::int64_t>(prepare_case));
  return more;
}

}  // namespace

std::vector<jit::Specialisation> Preparation::specialisations(const manifest::Op& op,
                                                              std::span<const std::int64_t> frame,
                                                              const std::string& arch) {
  std::vector<jit::Specialisation> result;
  for (std::size_t i = 0; i < op.prepare.value().cases.size(); ++i)
    result.push_back(jit::specialise_prepare(op, with_case(frame, 0, i), arch));
  return result;
}

Preparation::Preparation(const manifest::Site& site, std::span<const std::int64_t> frame, const std::string& arch,
                         answer::Cubins& cubins)
    : op_(*site.op), device_(*site.device) {
  std::map<std::vector<std::string>, std::shared_ptr<jit::Module>> loaded;  // by name expressions
  for (const jit::Specialisation& each : specialisations(op_, frame, arch)) {
    auto& module = loaded[each.name_expressions];
    if (!module) {
      const answer::KeyedCubin found = cubins.get_and_keep(each);
      module = std::make_shared<jit::Module>(found.cubin.image, found.cubin.lowered_names);
    }
    modules_.push_back(module);
  }
}

void Preparation::run(const Problem& problem, const Arguments& arguments, std::uint64_t seed, std::size_t prepare_case,
                      CUstream stream) const {
  const auto frame = with_case(manifest::frame_of({op_, device_}, problem), seed, prepare_case);
  const jit::Executable executable(op_, op_.prepare.value().passes, frame, modules_.at(prepare_case));
  jit::CallFrame call;
  if (!executable.fill(call, problem, arguments))
    throw Error(ErrorKind::bad_input, executable.explain_frame(problem, arguments));
  cuda::check(executable.launch(call, arguments, stream, 0), "launching [prepare]");
  cuda::check(cuda::Driver::get().cuStreamSynchronize(stream), "preparing inputs");
}

std::vector<std::size_t> cases_timed_last(const manifest::Op& op) {
  if (!op.prepare) return {0};
  std::vector<std::size_t> cases;
  for (std::size_t i = 0; i < op.prepare->cases.size(); ++i)
    if (i != op.prepare->timed.front()) cases.push_back(i);
  cases.push_back(op.prepare->timed.front());
  return cases;
}

std::string inputs_text(const manifest::Op& op, std::size_t prepare_case) {
  return op.prepare ? fmt::format(" with inputs '{}'", op.prepare->cases.at(prepare_case)) : std::string();
}

}  // namespace kiln::tune
