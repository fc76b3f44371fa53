// An op, and a file in memory that holds records of it: for tests of what the resolver answers. No device, no machine code.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "answer/explain.hpp"
#include "answer/near_fixture.hpp"
#include "answer/resolver.hpp"
#include "jit/library.hpp"

namespace kiln::answer::testing {

using namespace kiln::answer;

using namespace kiln::answer::testing;

/// A choice as tests write it; `config` as "threads=256 vector=4".
struct Chosen {
  std::string sizes;
  std::string config;
  double cost_ns = 1000;
  std::string implementation = "fast";
  store::Role role = store::Role::fastest;
  bool stale = false;
};

inline store::Choice choice_of(const manifest::Op& op, const Problem& bucket, const Chosen& chosen,
                               const manifest::DeviceFacts& device) {
  store::Choice choice;
  choice.role = chosen.role;
  choice.sizes = chosen.sizes.empty() ? manifest::to_string(op, manifest::whole_of(op, bucket)) : chosen.sizes;
  choice.implementation = chosen.implementation;
  choice.config = chosen.config;
  choice.cost_ns = choice.low_ns = choice.high_ns = chosen.cost_ns;
  choice.samples = 9;
  const manifest::Implementation* declared = op.find(chosen.implementation);
  if (declared == nullptr) return choice;
  if (declared->is_library()) choice.compiler = jit::library_identity(declared->library);  // this very version
  const auto config = manifest::parse_config(*declared, chosen.config);
  if (config && !chosen.stale)
    choice.source_digest = present_source({op, device}, manifest::Variant{declared, *config}, bucket);
  return choice;
}

inline store::Record record_with(const manifest::Op& op, const Problem& bucket, const std::vector<Chosen>& choices,
                                 const manifest::DeviceFacts& device) {
  store::Record record = record_of(op, bucket, "", 0, device.device_class());
  record.baseline_ns = 20000;
  record.choices.clear();
  for (const Chosen& each : choices) record.choices.push_back(choice_of(op, bucket, each, device));
  return record;
}

class Shelf {
 public:
  explicit Shelf(bool with_model = true) : Shelf(rows_op(with_model)) {}
  explicit Shelf(manifest::Op described) : op(std::move(described)) {}

  void put(const Problem& bucket, const std::string& config, double cost_ns, const char* device_class = h200_class) {
    layers.put_all(std::vector{record_of(op, bucket, config, cost_ns, device_class)}, {});
  }
  void put(const Problem& bucket, const std::vector<Chosen>& choices, const char* device_class = h200_class) {
    layers.put_all(std::vector{record_with(op, bucket, choices, device_of(device_class))}, {});
  }
  [[nodiscard]] std::string key_of(const Problem& bucket) const {
    return manifest::Bucket({op, h200(), Regime::cold_l2}, bucket).key();
  }
  Resolution at(const Problem& problem, bool fallbacks = true, const manifest::DeviceFacts& device = h200()) {
    return resolve({op, device, Regime::cold_l2}, problem, layers, fallbacks);
  }
  /// The answer that serves the problem.
  Answer serves(const Problem& problem, const manifest::DeviceFacts& device = h200()) {
    const Resolution resolution = at(problem, true, device);
    const Answer* answer = resolution.first(problem).serves;
    REQUIRE(answer != nullptr);
    return *answer;
  }
  Explanation explained(const Problem& problem, const manifest::DeviceFacts& device = h200()) {
    jit::CompilePool pool(1);
    answer::Cubins cubins(layers, pool);
    return explain({op, device, Regime::cold_l2}, problem, "sm_90a", layers, cubins);
  }

  manifest::Op op;
  store::Layers layers{{}};
};

}  // namespace kiln::answer::testing
