#include "answer/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>

#include "answer/expected_times.hpp"
#include "answer/machine_code.hpp"
#include "answer/resolver.hpp"
#include "jit/executable.hpp"
#include "kiln/error.hpp"
#include "manifest/kernel_name.hpp"

namespace kiln::answer {
namespace {

std::string triple(const std::array<manifest::Expression, 3>& expressions, std::span<const std::int64_t> frame) {
  std::string text;
  for (const manifest::Expression& each : expressions) {
    const manifest::Value value = each.evaluate(frame);
    text += value.ok() ? fmt::format(" {}", value.number) : fmt::format(" ({})", to_string(value.status));
  }
  return text;
}

std::string_view function_of(manifest::CollectiveKind kind) {
  switch (kind) {
    case manifest::CollectiveKind::all_gather: return "ncclAllGather";
    case manifest::CollectiveKind::reduce_scatter: return "ncclReduceScatter";
    case manifest::CollectiveKind::all_reduce: break;
  }
  return "ncclAllReduce";
}

std::vector<std::string> passes_of(const manifest::Site& site, const Answer& answer, const Problem& problem) {
  const manifest::Op& op = *site.op;
  const manifest::Implementation& implementation = *answer.implementation;
  const auto frame = answer.frame(site, problem);
  const auto names = manifest::name_expressions(op, implementation.passes, implementation.symbols, frame);
  std::vector<std::string> passes;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    const manifest::Pass& pass = implementation.passes[i];
    const bool early =
        pass.programmatic.evaluate(frame).truth() && site.device->sm() >= manifest::first_programmatic_sm;
    passes.push_back(fmt::format("{} grid{} block{} cluster{} shared {}{}", names[i], triple(pass.grid, frame),
                                 triple(pass.block, frame), triple(pass.cluster, frame),
                                 pass.shared.evaluate(frame).number, early ? " programmatic" : ""));
  }
  if (implementation.is_collective())
    passes.insert(implementation.collective.first ? passes.begin() : passes.end(),
                  std::string(function_of(implementation.collective.kind)));
  else if (implementation.is_library())
    passes.emplace_back("cublasLtMatmul");
  return passes;
}

/// "record wgmma tile_m=128 ..., 12.30 us at m=96 over 15 samples, 1 of 3 configs": the config that serves the problem.
std::string text_of(const store::Record& record, const manifest::Op& op, const Problem& problem,
                    const Problem& bucket) {
  const store::Choice* serving = &record.at_edge();
  std::set<std::pair<std::string_view, std::string_view>> configs;
  for (const store::Choice& each : record.choices) {
    if (each.role != store::Role::fastest) continue;
    configs.emplace(each.implementation, each.config);
    const auto region = manifest::parse_region(op, bucket, each.sizes);
    if (region && region->contains(op, problem)) serving = &each;
  }
  return fmt::format("record {} {}, {:.2f} us over {} sample{}{}", serving->implementation, serving->config,
                     serving->cost_ns / 1000, serving->samples, serving->samples == 1 ? "" : "s",
                     configs.size() < 2 ? "" : fmt::format(", 1 of {} configs", configs.size()));
}

using ByName = std::map<std::string, std::set<std::int64_t>>;

/// "n (2048, 4096), k (1024)"
std::string text_of(const ByName& sizes) {
  constexpr std::size_t shown = 4;
  std::string text;
  for (const auto& [name, values] : sizes) {
    const std::vector<std::int64_t> first(values.begin(), std::next(values.begin(), std::min(shown, values.size())));
    text += fmt::format("{}{} ({}{})", text.empty() ? "" : ", ", name, fmt::join(first, ", "),
                        values.size() > shown ? fmt::format(" and {} more", values.size() - shown) : "");
  }
  return text;
}

/// Returns the axes whose sizes differ. Axes of policy `exact` hide the others, because no length of a batch mends
/// them.
std::map<std::string, std::int64_t> differing_axes(const manifest::Op& op, const Problem& bucket,
                                                   const Problem& other) {
  std::map<std::string, std::int64_t> exact, others;
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    if (other.axes[i] == bucket.axes[i]) continue;
    (manifest::is_exact(op, i, bucket) ? exact : others).emplace(op.axes[i].name, other.axes[i]);
  }
  return exact.empty() ? others : exact;
}

/// "120 of other sizes; nearest: 9 of other n (2048, 4096)": the nearest records differ in the fewest exact axes.
std::string text_of_sizes(const manifest::Op& op, const Problem& bucket, const std::vector<Problem>& records) {
  const auto distance = [&](const Problem& other) {
    std::size_t exact = 0;
    for (std::size_t i = 0; i < op.axes.size(); ++i)
      exact += manifest::is_exact(op, i, bucket) && other.axes[i] != bucket.axes[i] ? 1 : 0;
    return exact;
  };
  const std::size_t least = distance(*std::ranges::min_element(records, {}, distance));
  ByName nearest;
  std::size_t count = 0;
  for (const Problem& each : records) {
    if (distance(each) != least) continue;
    ++count;
    for (const auto& [name, size] : differing_axes(op, bucket, each)) nearest[name].insert(size);
  }
  const std::string sizes = fmt::format("{} of other {}", count, text_of(nearest));
  return count == records.size() ? sizes : fmt::format("{} of other sizes; nearest: {}", records.size(), sizes);
}

/// Says what a file without a record of the bucket holds of the op.
std::string what_else(store::File& file, const manifest::Bucket& bucket) {
  const manifest::Op& op = *bucket.op;
  std::vector<Problem> sizes;
  std::int64_t types = 0, forms = 0, devices = 0;
  for (const store::Record& record : file.records(op.name)) {
    const auto other = manifest::parse_bucket(op, record.bucket);
    if (record.device_class != bucket.device->device_class_for(op))
      ++devices;
    else if (!other || record.revision != op.revision || *other == bucket.edge)
      ++forms;
    else if (other->selections == bucket.edge.selections)
      sizes.push_back(*other);
    else
      ++types;
  }
  if (!sizes.empty()) return "no record of this bucket, " + text_of_sizes(op, bucket.edge, sizes);
  if (types > 0) return fmt::format("no record of these types and choices, {} of others", types);
  if (forms > 0) return fmt::format("no record of this revision and regime, {} of others", forms);
  if (devices > 0) return fmt::format("no record for this device class, {} for others", devices);
  return fmt::format("no record of {}", op.name);
}

/// Whether the overlay is still to be made, by the first write.
bool is_to_be_made(const store::Layer& layer) {
  std::error_code failure;
  return layer.kind == store::LayerKind::overlay && layer.refused.empty() && !layer.path.empty() &&
         !std::filesystem::exists(layer.path, failure) && !failure;
}

LayerAnswer answer_of(const store::Layer& layer, const manifest::Bucket& bucket, const std::string& key,
                      const Problem& problem) {
  LayerAnswer answer;
  answer.layer = name_of(layer);
  answer.trust = layer.trust;
  answer.trusted = layer.trusted_for_code;
  answer.opened = layer.refused.empty();
  const auto record = layer.file ? layer.file->find_record(key) : std::nullopt;
  if (record)
    answer.found = text_of(*record, *bucket.op, problem, bucket.edge);
  else if (is_to_be_made(layer))
    answer.found = "the file does not exist yet";
  else
    answer.found = answer.opened ? what_else(*layer.file, bucket) : "not opened: " + layer.refused;
  if (const auto overwritten = layer.file ? layer.file->why_overwritten() : std::string(); !overwritten.empty())
    answer.found = record ? fmt::format("{}; {}", answer.found, overwritten) : overwritten;
  return answer;
}

std::string why_of(const Resolution& resolution, const Resolution::First& first, const Problem& problem) {
  std::string why = resolution.is_hit() || resolution.unusable.empty()
                        ? ""
                        : fmt::format("the record cannot serve ({}); ", resolution.unusable);
  if (first.serves == nullptr) return why + resolution.why_none;
  for (const auto& [answer, why_not] : first.passed_over)
    why += fmt::format("{}, from the {}, {}; ", answer->name(), to_string(answer->origin), why_not);
  why += first.serves->why;
  if (!first.serves->implementation->is_library()) return why;
  if (const Answer* other = resolution.first_own(problem).serves)
    why += fmt::format("; a length on the device, and what the library refuses, goes to {}{}{}", other->name(),
                       other->cost_ns > 0 ? fmt::format(", {:.2f} us", other->cost_ns / 1000) : "",
                       other->stale ? ", tuned from other sources" : "");
  return why;
}

}  // namespace

Explanation explain_nothing(const manifest::Op& op, const Problem& problem) {
  Explanation explanation;
  explanation.problem = manifest::display_text(op, problem);
  explanation.origin = Origin::hot;
  const auto zero = std::ranges::find(problem.axes, 0);
  explanation.why = fmt::format("axis '{}' is 0: a launch does nothing, and its outputs stay as they are",
                                op.axes[static_cast<std::size_t>(zero - problem.axes.begin())].name);
  explanation.expected_slowdown = 1;
  return explanation;
}

std::string text_of_files(const manifest::Bucket& bucket, const store::Layers& layers) {
  std::string text;
  for (const store::Layer& layer : layers.layers()) {
    const LayerAnswer answer = answer_of(layer, bucket, bucket.key(), bucket.edge);
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", answer.layer, answer.found);
  }
  return text;
}

Explanation explain(const manifest::Site& site, const Problem& problem, const std::string& arch, store::Layers& layers,
                    Cubins& cubins) {
  if (const std::string refused = jit::why_defaults_refused(site, problem); !refused.empty())
    throw Error(ErrorKind::bad_input, refused);
  Resolution resolution = resolve(site, problem, layers);
  leave_servable(resolution, arch, cubins);
  const Resolution::First first = resolution.first(problem);
  const Answer* const answer = first.serves;
  Explanation explanation;
  explanation.problem = manifest::display_text(*site.op, problem);
  explanation.bucket = manifest::display_text(*site.op, resolution.bucket.edge);
  explanation.key = resolution.key;
  for (const store::Layer& layer : layers.layers())
    explanation.layers.push_back(answer_of(layer, resolution.bucket, resolution.key, problem));
  explanation.why = why_of(resolution, first, problem);
  explanation.miss = resolution.miss ? to_string(*resolution.miss) : std::string_view();
  if (answer == nullptr) return explanation;
  explanation.origin = answer->origin;
  explanation.stale = answer->stale;
  explanation.cost_ns = answer->cost_ns;
  explanation.timed_at = answer->timed_at;
  Slowdown slowdown = expected_slowdown(resolution.bucket, *answer, layers);
  explanation.expected_slowdown = slowdown.times;
  explanation.slowdown_grounds = std::move(slowdown.grounds);
  explanation.implementation = answer->implementation->name;
  explanation.config = manifest::to_string(*answer->implementation, answer->config);
  explanation.passes = passes_of(site, *answer, problem);
  if (const std::string& library = answer->implementation->library; !library.empty()) {
    const std::string identity = jit::library_identity(library);
    explanation.library = identity.empty() ? library + ", which is not here" : identity;
  }
  MachineCode code = machine_code_of(site, *answer, arch, cubins);
  explanation.cubin_found = code.found;
  explanation.machine_code = std::move(code.where);
  explanation.compiler = std::move(code.compiler);
  explanation.nvrtc = cubins.own_compiler();
  return explanation;
}

}  // namespace kiln::answer
