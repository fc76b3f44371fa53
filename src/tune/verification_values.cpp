#include "tune/verification_values.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"

namespace kiln::tune {
namespace {

constexpr std::int64_t usual_integer = 1;
constexpr double usual_real = 1e-5;

}  // namespace

std::vector<std::int64_t> verification_frame(const manifest::Site& site, const Problem& problem,
                                             std::span<const std::pair<RuntimeId, std::int64_t>> given) {
  const manifest::Op& op = *site.op;
  auto frame = manifest::frame_of(site, problem);
  // In the manifest's order: a value may depend on those before it.
  for (std::size_t i = 0; i < op.runtime.size(); ++i) {
    const manifest::Runtime& runtime = op.runtime[i];
    if (!runtime.is_integer()) continue;
    std::int64_t& slot = frame[static_cast<std::size_t>(op.first_runtime()) + i];
    if (const auto own = std::ranges::find(given, i, [](const auto& each) { return std::size_t{each.first.index}; });
        own != given.end()) {
      slot = own->second;
      continue;
    }
    if (runtime.team_rank) continue;
    const auto& how = runtime.verify_integer ? runtime.verify_integer : runtime.default_integer;
    const manifest::Value value = how ? how->evaluate(frame) : manifest::Value{usual_integer};
    if (!value.ok())
      throw Error(
          ErrorKind::bad_expression,
          fmt::format("op '{}': the value '{}' that '{}' is verified with cannot be computed at {}: {}", op.name,
                      how->text(), runtime.name, manifest::display_text(op, problem), to_string(value.status)));
    slot = value.number;
  }
  return frame;
}

void set_verification_values(const manifest::Op& op, std::span<const std::int64_t> frame, Arguments& arguments) {
  for (std::size_t i = 0; i < op.runtime.size(); ++i) {
    const manifest::Runtime& runtime = op.runtime[i];
    const RuntimeId id = runtime_id(op, i);
    if (runtime.team_rank) continue;
    if (runtime.is_integer()) {
      if (runtime.verify_integer || !runtime.default_integer)
        arguments.set(id, frame[static_cast<std::size_t>(op.first_runtime()) + i]);
    } else if (runtime.verify_real || !runtime.default_real) {
      arguments.set(id, runtime.verify_real ? runtime.verify_real->evaluate(frame).value_or(usual_real) : usual_real);
    }
  }
}

RuntimeId runtime_id(const manifest::Op& op, std::size_t index) noexcept {
  const manifest::Runtime& runtime = op.runtime[index];
  return {static_cast<std::uint8_t>(index), runtime.is_integer()                         ? RuntimeId::Kind::integer
                                            : runtime.type == manifest::RuntimeType::f64 ? RuntimeId::Kind::real64
                                                                                         : RuntimeId::Kind::real32};
}

}  // namespace kiln::tune
