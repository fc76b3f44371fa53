// The built-in ops' kernels, compiled by NVRTC: the device emulator knows names that NVRTC does not.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "cuda/nvrtc_api.hpp"
#include "jit/executable.hpp"
#include "jit/parameters.hpp"
#include "kiln/error.hpp"
#include "manifest/catalogue.hpp"
#include "manifest/limits.hpp"
#include "manifest/variant.hpp"

using namespace kiln;
using namespace kiln::jit;

namespace {

struct Target {
  std::string arch;
  manifest::DeviceFacts facts;
};

/// The lowest first: an A100, an L40S, an H200.
const std::vector<Target> targets = {
    {"sm_80", {{80, 108, 166912, 167936, 65536, 2048, 41943040}}},
    {"sm_89", {{89, 142, 101376, 102400, 65536, 1536, 100663296}}},
    {"sm_90a", {{90, 132, 232448, 233472, 65536, 2048, 62914560}}},
};

using Takes = std::function<bool(const Problem&)>;

/// All axes at `size`, or as near as kernels take them. Nothing where the op does not allow these types and choices.
std::optional<Problem> sized(const manifest::Op& op, std::vector<manifest::Setting> words, std::int64_t size) {
  for (const manifest::Axis& axis : op.axes) {
    const std::int64_t most = axis.team ? manifest::most_kernel_ranks : axis.maximum;
    words.push_back({axis.name, std::to_string(std::min(most, size))});
  }
  try {
    return manifest::make_problem(op, words);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Returns a problem with this word of a selection, and others at their defaults but for the first type. Nothing where none is taken.
std::optional<Problem> with_word(const manifest::Op& op, std::size_t selection, std::size_t word, const Takes& takes) {
  const manifest::Selection &first = op.selections[0], &its = op.selections[selection];
  for (const std::int64_t size : {4096, 16}) {
    for (std::size_t type = 0; type < first.values.size(); ++type) {
      if (selection == 0 && type != word) continue;
      std::vector<manifest::Setting> words = {{first.name, first.values[type]}};
      if (selection != 0) words.push_back({its.name, its.values[word]});
      const auto problem = sized(op, words, size);
      if (problem && takes(*problem)) return problem;
    }
  }
  return std::nullopt;
}

/// Returns few problems that have, between them, each word of each type and choice that any problem which is taken has.
std::vector<Problem> covering(const manifest::Op& op, const Takes& takes) {
  std::set<std::pair<std::size_t, std::size_t>> left;
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    for (std::size_t word = 0; word < op.selections[i].values.size(); ++word) left.insert({i, word});
  std::vector<Problem> problems;
  while (!left.empty()) {
    const auto [selection, word] = *left.begin();
    left.erase(left.begin());
    auto problem = with_word(op, selection, word, takes);
    if (!problem) continue;
    std::set<std::size_t> chosen = {0, selection};
    for (const auto& [other, its_word] : left) {
      if (chosen.contains(other)) continue;
      Problem changed = *problem;
      changed.selections[other] = static_cast<std::uint8_t>(its_word);
      if (!manifest::is_allowed(op, changed) || !takes(changed)) continue;
      problem = changed;
      chosen.insert(other);
    }
    for (std::size_t i = 0; i < op.selections.size(); ++i) left.erase({i, problem->selections[i]});
    problems.push_back(*problem);
  }
  return problems;
}

/// Compiles, and checks that each pass gives its kernel what it takes. `implementation` is null for passes of op.toml.
void check(const manifest::Op& op, const manifest::Implementation* implementation,
           const std::vector<manifest::Pass>& passes, const Specialisation& code, std::span<const std::int64_t> frame) {
  Cubin cubin;
  try {
    cubin = compile(code);
  } catch (const Error& error) {
    FAIL_CHECK(std::string(error.what()));
    return;
  }
  std::size_t name = 0;
  for (const manifest::Pass& pass : passes) {
    if (pass.when && pass.when->evaluate(frame).number == 0) continue;
    const auto parameters = parameter_sizes(cubin.image, cubin.lowered_names.at(name++));
    REQUIRE(parameters.has_value());
    CHECK_NOTHROW(check_arguments(op, implementation, pass, *parameters));
  }
}

/// The lowest architecture that serves a problem, and a config there.
struct Served {
  const Target* target;
  manifest::Config config;
};

std::optional<Served> served(const manifest::Op& op, const manifest::Implementation& implementation,
                             const Problem& problem) {
  for (const Target& target : targets) {
    if (manifest::why_not_eligible({op, target.facts}, implementation, problem)) continue;
    if (!manifest::default_of(implementation).broken_constraint({op, target.facts}, problem))
      return Served{&target, implementation.default_config};
    const auto configs = manifest::search_space({op, target.facts}, implementation, problem);
    if (!configs.empty()) return Served{&target, configs.front()};
  }
  return std::nullopt;
}

void check_implementation(const manifest::Op& op, const manifest::Implementation& implementation) {
  CAPTURE(implementation.file);
  const auto problems =
      covering(op, [&](const Problem& problem) { return served(op, implementation, problem).has_value(); });
  CHECK_FALSE(problems.empty());
  for (const Problem& problem : problems) {
    const Served at = served(op, implementation, problem).value();
    const auto frame = manifest::Variant{&implementation, at.config}.frame({op, at.target->facts}, problem);
    CAPTURE(at.target->arch);
    CAPTURE(manifest::display_text(op, problem));
    check(op, &implementation, implementation.passes, jit::specialise(op, implementation, frame, at.target->arch),
          frame);
  }
}

/// The reference and what prepares inputs.
void check_verification(const manifest::Op& op) {
  const Target& target = targets.front();
  for (const Problem& problem : covering(op, [](const Problem&) { return true; })) {
    auto frame = manifest::frame_of({op, target.facts}, problem);
    CAPTURE(op.name);
    CAPTURE(manifest::display_text(op, problem));
    check(op, nullptr, op.reference, specialise_reference(op, frame, target.arch), frame);
    if (!op.prepare) continue;
    frame.insert(frame.end(), {0, 0});  // seed and case
    check(op, nullptr, op.prepare->passes, specialise_prepare(op, frame, target.arch), frame);
  }
}

/// Checks every second kernel of the built-in ops, from the first or from the second: the halves run side by side.
void check_half(std::size_t half) {
  const manifest::Catalogue catalogue(std::span<const std::filesystem::path>{});
  std::size_t index = 0;
  for (const manifest::Op& op : catalogue.all()) {
    if (index++ % 2 == half) check_verification(op);
    for (const manifest::Implementation& each : op.implementations)
      if (each.has_kernels() && index++ % 2 == half) check_implementation(op, each);
  }
}

}  // namespace

// A minute of compiles each, where nvrtc_once remembers none.
TEST_CASE("each built-in kernel compiles with each of its types and choices for its lowest architecture: first half" *
          doctest::skip(cuda::Nvrtc::find() == nullptr)) {
  check_half(0);
}
TEST_CASE("each built-in kernel compiles with each of its types and choices for its lowest architecture: second half" *
          doctest::skip(cuda::Nvrtc::find() == nullptr)) {
  check_half(1);
}
