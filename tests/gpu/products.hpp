// Kernels of products of each kind, and their tensors on the host.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string_view>
#include <vector>

#include "cuda/driver_api.hpp"
#include "gpu/check_implementations.hpp"
#include "twins/elements.hpp"

namespace kiln::gpu_tests {

inline TensorId tensor_named(const manifest::Op& op, std::string_view name) {
  const auto found = std::ranges::find(op.tensors, name, &manifest::Tensor::name);
  REQUIRE(found != op.tensors.end());
  return {static_cast<std::uint8_t>(found - op.tensors.begin())};
}

using Bits = std::vector<unsigned char>;

/// Waits for the stream.
inline Bits read_bits(const Fixture& fixture, const void* from, std::int64_t bytes) {
  Bits bits(static_cast<std::size_t>(bytes));
  cuda::check(cuda::Driver::get().cuMemcpyDtoHAsync_v2(bits.data(), reinterpret_cast<CUdeviceptr>(from), bits.size(),
                                                       fixture.stream.handle()),
              "cuMemcpyDtoHAsync");
  fixture.stream.synchronize();
  return bits;
}

/// Calls visit(T{}) with the host's form of an element type that products are of.
template <typename Visit>
auto with_type(manifest::DType type, Visit visit) {
  switch (type) {
    case manifest::DType::bf16: return visit(fake_cuda::Bf16{});
    case manifest::DType::f16: return visit(fake_cuda::F16{});
    case manifest::DType::e4m3: return visit(fake_cuda::E4m3{});
    default: REQUIRE(type == manifest::DType::f32); return visit(float{});
  }
}

inline std::vector<float> to_numbers(manifest::DType type, const Bits& bits) {
  return with_type(type, [&]<typename T>(T) {
    std::vector<float> numbers(bits.size() / sizeof(T));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      T element;
      std::memcpy(&element, bits.data() + i * sizeof element, sizeof element);
      numbers[i] = static_cast<float>(fake_cuda::to_double(element));
    }
    return numbers;
  });
}

/// Each number rounded once, to the nearest.
inline Bits to_bits(manifest::DType type, const std::vector<float>& numbers) {
  return with_type(type, [&]<typename T>(T) {
    Bits bits(numbers.size() * sizeof(T));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const T element = fake_cuda::from_double<T>(static_cast<double>(numbers[i]));
      std::memcpy(bits.data() + i * sizeof element, &element, sizeof element);
    }
    return bits;
  });
}

/// What makes a config another kind of kernel, and not another size: parameters that are switches, and whether k is shared.
inline std::vector<std::int64_t> kind_of(const manifest::Implementation& implementation,
                                         const manifest::Config& config) {
  std::vector<std::int64_t> kind;
  for (std::size_t i = 0; i < config.size(); ++i) {
    const manifest::Parameter& parameter = implementation.parameters[i];
    const bool is_switch = std::ranges::all_of(parameter.values, [](auto value) { return 0 <= value && value <= 2; });
    const bool shares_k = parameter.name == "splits" || parameter.name == "blocks";
    if (is_switch || shares_k) kind.push_back(std::min<std::int64_t>(config[i], 2));
  }
  return kind;
}

/// Of each implementation but a library's that is eligible, a config of each kind, `most` of them.
inline std::vector<Candidate> one_of_each_kind(const Fixture& fixture, const manifest::Op& op, const Problem& bucket,
                                               std::size_t most, std::mt19937& generator) {
  std::vector<Candidate> chosen;
  for (const manifest::Implementation& implementation : op.implementations) {
    if (implementation.is_library() || manifest::why_not_eligible({op, fixture.facts()}, implementation, bucket))
      continue;
    std::vector<manifest::Config> space = manifest::searched_space({op, fixture.facts()}, implementation, bucket);
    std::shuffle(space.begin(), space.end(), generator);
    std::map<std::vector<std::int64_t>, manifest::Config> kinds;
    for (const manifest::Config& config : space)
      if (kinds.size() < most) kinds.try_emplace(kind_of(implementation, config), config);
    for (auto& [kind, config] : kinds) chosen.push_back({&implementation, std::move(config)});
  }
  return chosen;
}

/// Begins to compile all of them; those that the bucket makes illegal are left out.
inline void prefetch(Fixture& fixture, const manifest::Op& op, const Problem& bucket,
                     std::vector<Candidate>& candidates) {
  std::erase_if(candidates, [&](const Candidate& each) {
    const auto frame = each.frame({op, fixture.facts()}, bucket);
    if (jit::broken_fixed_constraint(op, *each.implementation, frame)) return true;
    fixture.cubins.prefetch(jit::specialise(op, *each.implementation, frame, fixture.arch()));
    return false;
  });
}

/// Launches it for tensors of the caller's; false where these sizes and addresses are not for it.
inline bool launch_product(const Fixture& fixture, const jit::Executable& executable, const Problem& problem,
                           const Arguments& arguments) {
  jit::CallFrame frame;
  if (!executable.fill(frame, problem, arguments) || executable.admits(frame, arguments) != jit::Admission::admitted)
    return false;
  tune::TrialWorkspace workspace(executable);
  workspace.renew(fixture.stream.handle());
  cuda::check(executable.launch(frame, arguments, fixture.stream.handle(), workspace.blocks()), "launching a product");
  fixture.stream.synchronize();  // before the workspace goes
  return true;
}

}  // namespace kiln::gpu_tests
