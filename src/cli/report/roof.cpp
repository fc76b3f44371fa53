#include "cli/report/roof.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "cli/target.hpp"

namespace kiln::cli::report {
namespace {

// The H200's memory: a device copy, bytes read plus written, as measured; its data sheet says 4.8 TB/s.
constexpr std::array<Roof, 1> roofs = {{{h200_device_class, "NVIDIA H200", 4.3e12, "a measured copy"}}};

// The H200's data sheet gives tensor rates with sparsity: these are half of them. f32 is the plain units', since f32 ops here may not
// round to tf32.
constexpr std::array<std::pair<std::string_view, double>, 7> h200_peaks = {{{"bf16", 989e12},
                                                                            {"f16", 989e12},
                                                                            {"e4m3", 1979e12},
                                                                            {"e5m2", 1979e12},
                                                                            {"i8", 1979e12},
                                                                            {"f32", 67e12},
                                                                            {"f64", 67e12}}};

}  // namespace

const Roof* roof_of(std::string_view device_class) noexcept {
  const auto found =
      std::find_if(roofs.begin(), roofs.end(), [&](const Roof& each) { return each.device_class == device_class; });
  return found == roofs.end() ? nullptr : &*found;
}

double peak_flops(const Roof& /*the one there is*/, std::string_view dtype) noexcept {
  const auto found =
      std::find_if(h200_peaks.begin(), h200_peaks.end(), [&](const auto& each) { return each.first == dtype; });
  return found == h200_peaks.end() ? 0.0 : found->second;
}

std::string_view dtype_of(const Entry& entry) {
  if (entry.op == nullptr) return {};
  for (std::size_t i = 0; i < entry.op->selections.size(); ++i)
    if (entry.op->selections[i].is_type()) return entry.op->selections[i].values[entry.bucket.selections[i]];
  return {};
}

Reached reached_by(const Entry& entry) {
  constexpr double absurd = 1e21;  // a cost that no device has
  const double seconds = entry.record.at_edge().cost_ns * 1e-9;
  if (!(seconds > 0) || entry.bytes / seconds > absurd || entry.flops / seconds > absurd) return {};
  return {entry.bytes / seconds, entry.flops / seconds};
}

double share_of_roof(const Entry& entry) {
  const Roof* roof = roof_of(entry.record.device_class);
  const Reached reached = reached_by(entry);
  if (roof == nullptr || entry.record.regime != "cold") return 0;  // from a warm L2 less than all comes from DRAM
  const double of_memory = reached.bytes_per_second / roof->bytes_per_second;
  const double peak = peak_flops(*roof, dtype_of(entry));
  return std::max(of_memory, peak > 0 ? reached.flops_per_second / peak : 0.0);
}

}  // namespace kiln::cli::report
