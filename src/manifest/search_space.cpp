// Which configs of an implementation are legal, and which a tune tries.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kiln/error.hpp"
#include "manifest/limits.hpp"
#include "manifest/variant.hpp"

namespace kiln::manifest {
namespace {

// Visits, in the manifest's order, every config that meets the constraints and the `further` conditions, until `visit`
// returns false. A condition is checked as soon as the last parameter that it uses has a value, which prunes all
// configs with the same prefix. Time is bounded by the number of steps, each of which gives one parameter a value,
// because the number of configs says little about time.
class Walk {
 public:
  Walk(const Op& op, const Implementation& implementation, std::vector<std::int64_t> frame,
       std::span<const Expression> further)
      : parameters_(implementation.parameters),
        op_(op),
        implementation_(implementation),
        first_(static_cast<std::size_t>(op.first_parameter())),
        frame_(std::move(frame)),
        checks_(parameters_.size() + 1) {
    std::vector<Range> known;
    for (const std::int64_t value : frame_) known.push_back({value, value});
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto [lowest, highest] = std::ranges::minmax(parameters_[i].values);
      known[first_ + i] = {lowest, highest};
    }
    for (const std::span<const Expression> list : {std::span(implementation.constraints), further})
      for (const Expression& each : list) add(each.within(known));
  }

  /// Throws Error(bad_manifest) after most_search_steps.
  template <typename Visit>
  bool run(Visit visit, std::size_t bound = 0) {
    if (++steps_ > most_search_steps) give_up();
    for (const Expression& condition : checks_[bound])
      if (!condition.evaluate(frame_).truth()) return true;
    if (bound == parameters_.size())
      return visit(Config(frame_.begin() + static_cast<std::ptrdiff_t>(first_), frame_.end()));
    for (const std::int64_t value : parameters_[bound].values) {
      frame_[first_ + bound] = value;
      if (!run(visit, bound + 1)) return false;
    }
    return true;
  }

 private:
  void add(Expression condition) {
    const std::vector<int> slots = condition.slots();
    const std::size_t bound = slots.empty() ? 0 : static_cast<std::size_t>(slots.back()) - first_ + 1;
    if (condition.constant_value().value_or(0) == 0) checks_[bound].push_back(std::move(condition));
  }

  [[noreturn]] void give_up() const {
    throw Error(
        ErrorKind::bad_manifest,
        fmt::format(
            "{} of op {}: its parameters take more than {} steps to go through; declare fewer values, or conditions that "
            "name the first parameters alone, so that they refuse many configs at once",
            implementation_.name, op_.name, most_search_steps));
  }

  const std::vector<Parameter>& parameters_;
  const Op& op_;
  const Implementation& implementation_;
  std::int64_t steps_ = 0;
  std::size_t first_;
  std::vector<std::int64_t> frame_;
  std::vector<std::vector<Expression>> checks_;  // indexed by the number of parameters that must be bound before
};

}  // namespace

bool Implementation::exchanges_in_memory() const noexcept {
  return std::ranges::any_of(workspaces, &Workspace::symmetric) || std::ranges::any_of(passes, [](const Pass& pass) {
           return std::ranges::any_of(pass.arguments, [](const Argument& each) {
             return each.kind == ArgumentKind::team || each.kind == ArgumentKind::peers;
           });
         });
}

std::optional<std::string> why_not_eligible(const Site& site, const Implementation& implementation,
                                            const Problem& problem) {
  const Op& op = *site.op;
  const DeviceFacts& device = *site.device;
  const int axis = op.team_axis();
  const std::int64_t ranks = axis < 0 ? 1 : problem.axes[static_cast<std::size_t>(axis)];
  if (device.link == TeamLink::network && implementation.exchanges_in_memory())
    return "it needs the symmetric memory of a team on one host, and ranks that met at an address have none";
  if (device.link != TeamLink::network && ranks > most_kernel_ranks)
    return fmt::format(
        "kernels reach the memory of {} ranks at most; give a team of {} TeamOptions::address, and NCCL "
        "serves it",
        most_kernel_ranks, ranks);
  const auto frame = default_of(implementation).frame(site, problem);
  if (implementation.requires_ && !implementation.requires_->evaluate(frame).truth()) {
    return fmt::format("it requires {}, and this is {} with {}", implementation.requires_text, device.device_class(),
                       display_text(op, problem));
  }
  const auto broken = default_of(implementation).broken_constraint(site, problem);
  if (!broken) return std::nullopt;  // the usual case, which needs no walk
  if (implementation.is_library() && !implementation.has_kernels())
    return fmt::format("its constraint {} does not hold at {}", *broken, display_text(op, problem));
  bool found = false;
  Walk(op, implementation, frame, {}).run([&](const Config&) { return found = true, false; });
  if (found) return std::nullopt;
  return fmt::format("no config meets its constraints at {}; the default breaks {}", display_text(op, problem),
                     *broken);
}

std::vector<Config> search_space(const Site& site, const Implementation& implementation, const Problem& problem) {
  std::vector<Config> configs;
  if (!implementation.has_kernels()) return configs;
  Walk(*site.op, implementation, Variant{&implementation}.frame(site, problem), implementation.search)
      .run([&](Config config) {
        configs.push_back(std::move(config));
        return true;
      });
  return configs;
}

std::optional<std::size_t> count_legal(const Site& site, const Implementation& implementation,
                                       const Problem& problem) try {
  std::size_t count = 0;
  if (!implementation.has_kernels()) return count;
  Walk(*site.op, implementation, Variant{&implementation}.frame(site, problem), {}).run([&](const Config&) {
    ++count;
    return true;
  });
  return count;
} catch (const Error&) {
  return std::nullopt;
}

std::optional<std::vector<Config>> legal_configs(const Site& site, const Implementation& implementation,
                                                 const Problem& problem, std::size_t most) try {
  std::vector<Config> configs;
  if (!implementation.has_kernels()) return configs;
  Walk(*site.op, implementation, Variant{&implementation}.frame(site, problem), {}).run([&](Config config) {
    configs.push_back(std::move(config));
    return configs.size() < most;
  });
  return configs;
} catch (const Error& error) {
  if (error.kind() != ErrorKind::bad_manifest) throw;
  return std::nullopt;
}

std::vector<Config> searched_space(const Site& site, const Implementation& implementation, const Problem& problem) {
  std::vector<Config> all = search_space(site, implementation, problem);
  if (std::ranges::none_of(implementation.parameters, &Parameter::launch_only)) return all;
  std::vector<Config> searched;
  std::map<Config, std::size_t> place_of;  // by kernel
  for (Config& config : all) {
    Config kernel = kernel_config(implementation, config);
    const bool is_usual = config == kernel;
    const auto [known, is_new] = place_of.try_emplace(std::move(kernel), searched.size());
    if (is_new)
      searched.push_back(std::move(config));
    else if (is_usual)
      searched[known->second] = std::move(config);
  }
  return searched;
}

std::vector<Config> launches_of(const Site& site, const Variant& variant, const Problem& problem) {
  const Implementation* const implementation = variant.implementation;
  const Config& config = variant.config;
  std::vector<Config> launches{config};
  for (std::size_t i = 0; i < config.size(); ++i) {
    if (!implementation->parameters[i].launch_only) continue;
    const std::size_t before = launches.size();
    for (const std::int64_t value : implementation->parameters[i].values) {
      if (value == config[i]) continue;
      for (std::size_t j = 0; j < before; ++j) {
        launches.push_back(launches[j]);
        launches.back()[i] = value;
      }
    }
  }
  launches.erase(std::remove_if(launches.begin() + 1, launches.end(),
                                [&](const Config& each) {
                                  return Variant{implementation, each}.broken_constraint(site, problem).has_value();
                                }),
                 launches.end());
  return launches;
}

}  // namespace kiln::manifest
