#include "answer/model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "answer/throughput.hpp"

namespace kiln::answer {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

// A load from idle memory takes about 480 clocks (Luo et al., arXiv 2402.13499: 478 on an H100), and three to four
// times that from busy memory, which is the case that counts. From L2 it takes 270 clocks idle, and twice that busy.
constexpr double memory_latency_ns = 1000;
constexpr double l2_latency_ns = 300;
constexpr double launch_ns = 3000;            // between two events around an empty kernel
constexpr double dependent_launch_ns = 1000;  // of a further pass
constexpr double block_start_ns = 500;        // to start, to compute addresses, to drain
// Concurrent demands on several rates add up as a norm of this order. At infinity only the scarcest would count.
constexpr double norm_order = 4;

constexpr std::int64_t reserved_shared = 1024;  // bytes that the system takes of each block, since sm_80
constexpr std::int64_t register_granule = 8;    // registers of a thread are allocated in eights
constexpr std::int64_t most_registers = 255;    // per thread
constexpr std::int64_t most_resident = 32;      // blocks per multiprocessor (CUDA C++ Programming Guide)
// A cluster lies within a GPC of some 16 multiprocessors, in pairs. Which of them are disabled differs between devices.
constexpr std::int64_t of_gpc = 16, of_pair = 2;

/// The work of one block of a pass, and the number of blocks. Bytes and operations are per block.
struct BlockWork {
  std::int64_t blocks = 1, threads = 1, cluster = 1, resident = 1;
  manifest::Unit unit = manifest::Unit::fma;
  double operations = 0, read = 0, written = 0, shared = 0, in_flight = 1, round_trips = 1;
  double traffic = 0;               // bytes that all blocks read, if the manifest says so
  double distinct = 0, memory = 0;  // bytes of lines that no other block moves, and bytes between L2 and memory
};

struct Limit {
  double ns = 0;
  std::string_view name;
};

struct Time {
  double ns = 0;
  std::string_view limit;
};

template <std::size_t N>
Time joint(const std::array<Limit, N>& limits) {
  const Limit& most = *std::ranges::max_element(limits, {}, &Limit::ns);
  if (most.ns <= 0) return {0, most.name};
  double sum = 0;
  for (const Limit& each : limits) sum += std::pow(each.ns / most.ns, norm_order);
  return {most.ns * std::pow(sum, 1 / norm_order), most.name};
}

// Returns the share of a rate that so many threads reach. A multiprocessor's four partitions need one warp each for the
// tensor cores. Other instructions need two warps: results take four clocks, and about half of the instructions are
// independent.
double share_of_rate(manifest::Unit unit, double threads) {
  return std::min(1.0, threads / (unit == manifest::Unit::mma || unit == manifest::Unit::wgmma ? 128 : 256));
}

// Returns the time of a block before its first bytes and after its last.
double waiting_ns(const BlockWork& work, double latency_ns) { return block_start_ns + work.round_trips * latency_ns; }

/// `first`: no earlier wave runs while the blocks wait.
Time wave(const BlockWork& work, const manifest::DeviceFacts& device, const Throughput& rates, double latency_ns,
          std::int64_t blocks, bool first) {
  const auto multiprocessors = static_cast<double>(device.sm_count());
  const double active = std::min(static_cast<double>(blocks), multiprocessors);
  const double each = std::ceil(static_cast<double>(blocks) / multiprocessors);  // blocks of the busiest
  const double l2_rate = std::min(rates.l2_port_bytes, rates.l2_bytes * multiprocessors / active);
  const auto threads = static_cast<double>(work.threads);
  const double rate = rates.of(work.unit);

  // L2 sends lines once that several multiprocessors read at the same time, such as a matrix that their blocks share.
  // Only the ports limit such reads.
  Time together = joint(std::array{
      Limit{each * work.operations / (rate * share_of_rate(work.unit, each * threads)), "computation"},
      Limit{each * work.shared / rates.shared_bytes, "shared memory"},
      Limit{each * std::max((work.read + work.written) / rates.l2_port_bytes, work.distinct / l2_rate), "L2"},
      Limit{active * each * work.memory / rates.device_memory_bytes, "memory"}});
  if (first) together.ns += waiting_ns(work, latency_ns);
  const Time streaming = joint(
      std::array{Limit{work.operations / (rate * share_of_rate(work.unit, threads)), "computation"},
                 Limit{work.shared / rates.shared_bytes, "shared memory"}, Limit{work.read / rates.l2_port_bytes, "L2"},
                 Limit{work.read / work.in_flight * latency_ns, "latency"}});
  // Blocks of a wave end together, and therefore write together.
  const double writing = each * work.written * (1 / l2_rate + active / rates.device_memory_bytes);
  const double alone = waiting_ns(work, latency_ns) + streaming.ns + writing;
  if (together.ns >= alone) return together;
  return {alone, streaming.ns > alone / 2 ? streaming.limit : "latency"};
}

// Returns the multiprocessors that clusters can fill. On average half a cluster's pairs stay idle in each GPC.
std::int64_t within_clusters(std::int64_t multiprocessors, std::int64_t cluster) {
  return std::max(cluster,
                  multiprocessors - multiprocessors / of_gpc * std::max<std::int64_t>(cluster - of_pair, 0) / 2);
}

Time of_pass(const BlockWork& work, const manifest::DeviceFacts& device, const Throughput& rates, double latency_ns) {
  const std::int64_t at_once = within_clusters(device.sm_count(), work.cluster) * work.resident;
  const std::int64_t full = work.blocks / at_once, rest = work.blocks % at_once;
  Time time;
  if (full > 0) {
    time = wave(work, device, rates, latency_ns, at_once, true);
    if (full > 1) time.ns += static_cast<double>(full - 1) * wave(work, device, rates, latency_ns, at_once, false).ns;
  }
  if (rest > 0) {
    const Time tail = wave(work, device, rates, latency_ns, rest, full == 0);
    time = {time.ns + tail.ns, tail.ns > time.ns ? tail.limit : time.limit};
  }
  return time;
}

/// Evaluates expressions at one problem and config; `ok` turns false when one has no value.
class Evaluation {
 public:
  explicit Evaluation(std::vector<std::int64_t> frame) : frame_(std::move(frame)) {}
  std::int64_t operator()(const manifest::Expression& expression) {
    const manifest::Value value = expression.evaluate(frame_);
    ok = ok && value.ok() && value.number >= 0;
    return value.number;
  }
  std::int64_t volume(const std::array<manifest::Expression, 3>& triple) {
    double product = 1;
    for (const manifest::Expression& each : triple) product *= static_cast<double>((*this)(each));
    ok = ok && product >= 1 && product < 0x1p62;
    return ok ? static_cast<std::int64_t>(product) : 1;
  }
  double operator()(const std::optional<manifest::Expression>& expression, double otherwise) {
    return expression ? static_cast<double>((*this)(*expression)) : otherwise;
  }
  bool ok = true;

 private:
  std::vector<std::int64_t> frame_;
};

std::int64_t resident_blocks(const manifest::DeviceFacts& device, std::int64_t threads, std::int64_t shared,
                             std::int64_t registers) {
  const std::int64_t rounded = std::clamp((registers + register_granule - 1) / register_granule * register_granule,
                                          register_granule, most_registers);
  return std::min({most_resident, device.shared_per_sm() / (shared + reserved_shared),
                   device.threads_per_sm() / threads,
                   std::max<std::int64_t>(1, device.registers_per_sm() / (rounded * threads))});
}

BlockWork work_of(const manifest::Op& op, const manifest::Pass& pass, bool first, const manifest::DeviceFacts& device,
                  Evaluation& value) {
  static const auto& nothing_said = *new manifest::PassModel;
  const manifest::PassModel& model = pass.model ? *pass.model : nothing_said;
  const double op_bytes = first ? static_cast<double>(value(op.cost_bytes)) : 0;
  BlockWork work;
  work.blocks = value.volume(pass.grid);
  work.threads = value.volume(pass.block);
  work.cluster = value.volume(pass.cluster);
  const std::int64_t shared = value(pass.shared);
  const auto registers = static_cast<std::int64_t>(value(model.registers, 32));
  value.ok = value.ok && shared <= device.shared_per_block();
  if (!value.ok) return work;
  work.resident = resident_blocks(device, work.threads, shared, registers);
  value.ok = work.resident >= 1;
  const auto blocks = static_cast<double>(work.blocks);
  work.unit = model.unit;
  work.operations =
      value(model.operations, first && !pass.model ? static_cast<double>(value(op.cost_flops)) : 0) / blocks;
  work.read = value(model.read_bytes, op_bytes) / blocks;
  work.traffic = value(model.traffic_bytes ? model.traffic_bytes : model.read_bytes, 0);
  work.written = value(model.written_bytes, 0) / blocks;
  work.distinct = work.memory = value(model.memory_bytes, op_bytes) / blocks;
  work.shared = value(model.shared_bytes, 0) / blocks;
  work.in_flight = std::max(1.0, value(model.bytes_in_flight, work.read));
  work.round_trips = value(model.round_trips, 1);
  return work;
}

/// A library has no model: bytes and operations are spread over all multiprocessors.
BlockWork work_of_library(double bytes, double operations, const manifest::DeviceFacts& device) {
  const auto blocks = static_cast<double>(device.sm_count());
  BlockWork work;
  work.blocks = device.sm_count();
  work.threads = 256;
  work.unit = manifest::Unit::mma;
  work.operations = operations / blocks;
  work.read = work.distinct = work.memory = work.in_flight = std::max(1.0, bytes / blocks);
  return work;
}

/// What a collective beside kernels reads and writes. It is equal for all their configs, which this must tell apart no
/// further.
double bytes_of_collective(const manifest::Site& site, const manifest::Variant& variant, const Problem& at,
                           Evaluation& value) {
  const manifest::Op& op = *site.op;
  const manifest::Collective& collective = variant.implementation->collective;
  const auto frame = variant.frame(site, at);
  const bool has_parts = collective.kind != manifest::CollectiveKind::all_reduce;
  const std::int64_t parts = has_parts ? frame[static_cast<std::size_t>(op.team_axis())] : 2;
  return 2.0 * static_cast<double>(parts) * static_cast<double>(value(collective.count)) *
         static_cast<double>(size_of(op.dtype_of(collective.element, frame)));
}

}  // namespace

Estimate estimate(const manifest::Site& site, const manifest::Variant& variant, const Problem& at) {
  const manifest::Op& op = *site.op;
  const manifest::DeviceFacts& device = *site.device;
  const manifest::Implementation& implementation = *variant.implementation;
  Evaluation value(variant.frame(site, at));
  const Throughput rates = throughput_of(device);
  const bool in_l2 =
      site.regime == Regime::hot_l2 && value(op.cost_bytes) <= device.l2_bytes();  // left there by the run before
  const double latency_ns = in_l2 ? l2_latency_ns : memory_latency_ns;
  Estimate result;
  if (!implementation.has_kernels()) {
    BlockWork work =
        work_of_library(static_cast<double>(value(op.cost_bytes)), static_cast<double>(value(op.cost_flops)), device);
    if (in_l2) work.memory = 0;
    const Time time = of_pass(work, device, rates, latency_ns);
    return {value.ok ? time.ns + launch_ns : infinite, 1, work.blocks, 1, 0, value.ok ? time.limit : "geometry"};
  }
  double longest = -1;
  bool first = true, all_say_reads = true;
  for (const manifest::Pass& pass : implementation.passes) {
    if (pass.when && value(*pass.when) == 0) continue;
    BlockWork work = work_of(op, pass, first, device, value);
    if (!value.ok) return {infinite, 0, 0, 0, 0, "geometry"};
    if (in_l2) work.memory = 0;
    const Time time = of_pass(work, device, rates, first ? latency_ns : l2_latency_ns);
    result.ns += time.ns + (first ? launch_ns : dependent_launch_ns);
    result.read_bytes += work.traffic;
    all_say_reads = all_say_reads && work.traffic > 0;
    first = false;
    if (time.ns <= longest) continue;
    longest = time.ns;
    result.blocks = work.blocks;
    result.blocks_per_multiprocessor = static_cast<int>(work.resident);
    result.waves = static_cast<double>(work.blocks) / static_cast<double>(device.sm_count() * work.resident);
    result.limit = time.limit;
  }
  if (implementation.is_collective()) {
    const double bytes = bytes_of_collective(site, variant, at, value);
    if (!value.ok) return {infinite, 0, 0, 0, 0, "geometry"};
    result.ns += of_pass(work_of_library(bytes, 0, device), device, rates, l2_latency_ns).ns + dependent_launch_ns;
  }
  if (!all_say_reads) result.read_bytes = 0;
  return result;
}

std::vector<bool> modelled_parameters(const manifest::Op& op, const manifest::Implementation& implementation) {
  std::vector<bool> used(implementation.parameters.size());
  const auto look_at = [&](const manifest::Expression& expression) {
    for (std::size_t i = 0; i < used.size(); ++i)
      if (expression.uses(op.first_parameter() + static_cast<int>(i))) used[i] = true;
  };
  for (const manifest::Pass& pass : implementation.passes) {
    for (const auto* triple : {&pass.grid, &pass.block, &pass.cluster}) std::ranges::for_each(*triple, look_at);
    look_at(pass.shared);
    if (pass.when) look_at(*pass.when);
    if (!pass.model) continue;
    for (const auto manifest::PassModel::*each :
         {&manifest::PassModel::operations, &manifest::PassModel::read_bytes, &manifest::PassModel::traffic_bytes,
          &manifest::PassModel::written_bytes, &manifest::PassModel::memory_bytes, &manifest::PassModel::shared_bytes,
          &manifest::PassModel::bytes_in_flight, &manifest::PassModel::round_trips, &manifest::PassModel::registers})
      if (const auto& said = (*pass.model).*each) look_at(*said);
  }
  return used;
}

}  // namespace kiln::answer
