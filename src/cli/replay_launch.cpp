#include "cli/replay_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/random_values.hpp"
#include "kiln/error.hpp"
#include "manifest/bucketing.hpp"
#include "tune/bench.hpp"
#include "tune/preparation.hpp"
#include "tune/tensor_extent.hpp"
#include "tune/verification_case.hpp"
#include "tune/verification_values.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t batch = 256;  // a device queues about 1024 launches before the host must wait
constexpr int replay_bar_width = 30;

bool is_integer(manifest::DType type) noexcept {
  using enum manifest::DType;
  return type == i8 || type == u8 || type == i32 || type == i64;
}

/// One op's tensors, large enough for every problem of the trace. A tensor has separate memory for each of its types:
/// an index of one type would be out of range in another. A prepared tensor has memory for each problem, because its
/// values suit no other.
class SharedTensors {
 public:
  SharedTensors(const manifest::Op& op, const manifest::DeviceFacts& device) : op_(op), device_(device) {}

  void add(const Problem& problem) {
    const auto frame = tune::verification_frame({op_, device_}, problem);
    for (std::size_t i = 0; i < op_.tensors.size(); ++i) {
      const manifest::Tensor& tensor = op_.tensors[i];
      if (tensor.optional || !manifest::Op::takes_part(tensor, frame)) continue;
      const tune::TensorExtent extent = tune::extent_of(op_, tensor, frame);
      if (tensor.fill == manifest::Fill::prepared) {
        prepared_[problem][i].bytes = extent.elements * manifest::size_of(extent.type);
        continue;
      }
      Shared& shared = shared_[{i, extent.type}];
      shared.bytes = std::max(shared.bytes, extent.elements * manifest::size_of(extent.type));
      shared.filled = shared.filled || !tensor.output || manifest::Op::is_initialised(tensor, frame);
      if (tensor.last) shared.last = std::max(shared.last, tensor.last->evaluate(frame).number);
    }
  }

  void allocate(Tools& tools, const cuda::Stream& stream) {
    for (auto& [key, shared] : shared_) {
      const auto& [tensor, type] = key;
      shared.buffer.emplace(shared.bytes);
      if (op_.tensors[tensor].last)
        fill_offsets(*shared.buffer, type, shared.last);
      else if (op_.tensors[tensor].fill == manifest::Fill::index && is_integer(type))
        fill_indices(*shared.buffer, type);
      else if (shared.filled)
        fill(*shared.buffer, type);
    }
    for (auto& [problem, tensors] : prepared_) {
      for (auto& each : tensors) each.second.buffer.emplace(each.second.bytes);
      const auto frame = manifest::frame_of({op_, device_}, problem);
      tune::Preparation({op_, device_}, frame, tools.arch(), tools.cubins)
          .run(problem, arguments(problem), 1, op_.prepare->timed.front(), stream.handle());
    }
  }

  /// Leaves out optional tensors and tensors that the problem does not have. Run-time values are those of a
  /// verification.
  [[nodiscard]] Arguments arguments(const Problem& problem) const {
    Arguments arguments;
    const auto frame = tune::verification_frame({op_, device_}, problem);
    for (std::size_t i = 0; i < op_.tensors.size(); ++i) {
      if (op_.tensors[i].optional || !manifest::Op::takes_part(op_.tensors[i], frame)) continue;
      const bool own = op_.tensors[i].fill == manifest::Fill::prepared;
      const Shared& shared = own ? prepared_.at(problem).at(i) : shared_.at({i, op_.dtype_of(op_.tensors[i], frame)});
      arguments.set(TensorId{static_cast<std::uint8_t>(i)}, reinterpret_cast<const void*>(shared.buffer->pointer()));
    }
    tune::set_verification_values(op_, frame, arguments);
    return arguments;
  }

 private:
  static void fill(const cuda::Buffer& buffer, manifest::DType type) {
    constexpr std::int64_t period = 1 << 20;  // values, repeated
    const std::int64_t size = manifest::size_of(type);
    const auto values = random_values(type, static_cast<std::size_t>(std::min(period, buffer.bytes() / size + 1)), 1);
    const cuda::Driver& driver = cuda::Driver::get();
    for (std::int64_t at = 0; at < buffer.bytes(); at += static_cast<std::int64_t>(values.size())) {
      const auto bytes = std::min(values.size(), static_cast<std::size_t>(buffer.bytes() - at));
      cuda::check(driver.cuMemcpyHtoD_v2(buffer.pointer() + static_cast<CUdeviceptr>(at), values.data(), bytes),
                  "cuMemcpyHtoD");
    }
  }

  /// Offsets rise in equal steps to the largest problem's end. For smaller problems, kernels stop at the end of their
  /// axis.
  static void fill_offsets(const cuda::Buffer& buffer, manifest::DType type, std::int64_t last) {
    fill_integers(buffer, type, [last](std::int64_t i, std::int64_t count) {
      return last * i / std::max<std::int64_t>(count - 1, 1);
    });
  }

  /// Element i holds i, as in a verification, so that a problem's indices are within its own sizes.
  static void fill_indices(const cuda::Buffer& buffer, manifest::DType type) {
    const std::int64_t largest = std::numeric_limits<std::int64_t>::max() >> (64 - 8 * manifest::size_of(type));
    fill_integers(buffer, type, [largest](std::int64_t i, std::int64_t) { return i & largest; });
  }

  template <class Value>
  static void fill_integers(const cuda::Buffer& buffer, manifest::DType type, Value value_at) {
    const auto size = static_cast<std::size_t>(manifest::size_of(type));
    std::vector<std::byte> values(static_cast<std::size_t>(buffer.bytes()));
    const std::int64_t count = buffer.bytes() / manifest::size_of(type);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t value = value_at(i, count);
      std::memcpy(&values[static_cast<std::size_t>(i) * size], &value, size);  // little-endian
    }
    cuda::check(cuda::Driver::get().cuMemcpyHtoD_v2(buffer.pointer(), values.data(), values.size()), "cuMemcpyHtoD");
  }

  struct Shared {
    std::int64_t bytes = 0, last = 0;
    bool filled = false;
    std::optional<cuda::Buffer> buffer;
  };
  const manifest::Op& op_;
  const manifest::DeviceFacts& device_;
  std::map<std::pair<std::size_t, manifest::DType>, Shared> shared_;                            // by tensor and type
  std::unordered_map<Problem, std::map<std::size_t, Shared>, manifest::ProblemHash> prepared_;  // by tensor
};

/// A prepared launch.
struct Ready {
  const Op* op;
  const Problem* problem;
  Arguments arguments;
  bool is_first;  // of its bucket
};

struct Stage {
  std::map<const manifest::Op*, Op> ops;
  std::map<const manifest::Op*, SharedTensors> tensors;
  std::vector<Ready> launches;

  Stage(const Engine& engine, Tools& tools, const cuda::Stream& stream, std::span<const TraceEntry> trace) {
    const manifest::DeviceFacts& device = tools.facts();
    for (const TraceEntry& entry : trace) {
      ops.try_emplace(entry.op, engine.op(entry.op->name));
      tensors.try_emplace(entry.op, *entry.op, device).first->second.add(entry.problem);
    }
    for (auto& [op, each] : tensors) each.allocate(tools, stream);
    std::set<std::pair<const manifest::Op*, std::string>> seen;
    for (const TraceEntry& entry : trace) {
      const bool is_first =
          seen.emplace(entry.op, manifest::to_string(*entry.op, manifest::bucket_of(*entry.op, entry.problem))).second;
      launches.push_back({&ops.at(entry.op), &entry.problem, tensors.at(entry.op).arguments(entry.problem), is_first});
    }
  }
};

/// Returns "launch 3 (line 5), scale rows=16 cols=128 dtype=f32".
std::string name_of(std::span<const TraceEntry> trace, const TraceEntry& entry) {
  return fmt::format("launch {} (line {}), {} {}", &entry - trace.data() + 1, entry.line, entry.op->name,
                     manifest::display_text(*entry.op, entry.problem));
}

/// Times launches of known buckets on the device, in runs. A run ends before anything that stalls the host, which would
/// leave the device idle.
class Runs {
 public:
  Runs(const cuda::Stream& stream, LaunchReport& report) : stream_(stream), report_(report) {}

  void launch(const Ready& ready) {
    if (ready.is_first) end();
    launching_ = true;
    launch_one(ready);
    launching_ = false;
  }

  void end() {
    if (launches_ == 0) return;
    end_.record(stream_.handle());
    end_.synchronize();
    if (!stalled_) {
      if (const double ns = cuda::Event::elapsed_ns(begin_, end_); tune::is_time(ns)) {
        report_.device_ns += ns;
        report_.device_launches += launches_;
      }
    }
    launches_ = 0;
    stalled_ = false;
  }

  /// Throws `failure` with the launch that caused it. `launched` launches of the trace came before. Later calls report
  /// a fault on the device, so any launch since the last synchronisation may have caused it.
  [[noreturn]] void name(const Error& failure, std::span<const TraceEntry> trace, std::size_t launched) const {
    const std::size_t first = launched - static_cast<std::size_t>(launches_);
    std::string which;
    if (launching_ && (first == launched || !is_broken()))
      which = name_of(trace, trace[launched]);
    else if (first + 1 >= launched)
      which = name_of(trace, trace[first]) + ", failed on the device";
    else
      which = fmt::format(
          "one of the launches {} to {} failed on the device (kiln run launches a problem by itself), "
          "the first of them {}, the last {}",
          first + 1, launched, name_of(trace, trace[first]), name_of(trace, trace[launched - 1]));
    throw Error(failure.kind(), fmt::format("{}: {}", which, failure.what()));
  }

 private:
  static constexpr double stall_ns = 1e6;  // longer than any launch of a loaded plan

  /// True when the device has failed, after which every call fails.
  [[nodiscard]] bool is_broken() const {
    return cuda::Driver::get().cuStreamSynchronize(stream_.handle()) != CUDA_SUCCESS;
  }

  void launch_one(const Ready& ready) {
    if (!ready.is_first && launches_ == 0) begin_.record(stream_.handle());
    const auto before = std::chrono::steady_clock::now();
    const Origin origin = ready.op->launch(*ready.problem, ready.arguments, stream_.handle());
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - before;
    report_.host_ns[static_cast<std::size_t>(origin)].push_back(took.count());
    const bool stalled = ready.is_first || took.count() > stall_ns;
    if (stalled) {
      ++report_.stalls;
      report_.stall_ns += took.count();
    }
    if (ready.is_first) return stream_.synchronize();
    ++launches_;
    stalled_ = stalled_ || stalled;
  }

  const cuda::Stream& stream_;
  LaunchReport& report_;
  cuda::Event begin_, end_;
  std::int64_t launches_ = 0;  // of the run
  bool stalled_ = false;
  bool launching_ = false;  // a launch has begun and is not counted yet
};

void stop_if_asked(const char* what, std::size_t done, std::size_t total) {
  if (Interrupt::requested())
    throw Error(ErrorKind::interrupted, fmt::format("interrupted after {} {} of {} problems", what, done, total));
}

/// Key of the problems that one VerificationCase can serve in turn: those with equal op, selections and exact axes.
std::vector<std::int64_t> case_of(const TraceEntry& entry) {
  std::vector<std::int64_t> key(entry.problem.selections.begin(), entry.problem.selections.end());
  for (std::size_t i = 0; i < entry.op->axes.size(); ++i)
    if (manifest::is_exact(*entry.op, i, entry.problem)) key.push_back(entry.problem.axes[i]);
  return key;
}

/// Returns the distinct problems grouped by case, the largest of a case first, so that memory is allocated once a case.
std::vector<const TraceEntry*> in_order_of_cases(std::span<const TraceEntry> trace) {
  std::vector<const TraceEntry*> entries;
  for (const TraceEntry& entry : trace) entries.push_back(&entry);
  const auto rank = [](const TraceEntry* entry) { return std::tuple(entry->op->name, case_of(*entry)); };
  std::stable_sort(entries.begin(), entries.end(), [&](const TraceEntry* a, const TraceEntry* b) {
    const auto rank_a = rank(a), rank_b = rank(b);
    return rank_a != rank_b ? rank_a < rank_b : a->problem.axes > b->problem.axes;
  });
  const auto same = [](const TraceEntry* a, const TraceEntry* b) { return a->op == b->op && a->problem == b->problem; };
  entries.erase(std::unique(entries.begin(), entries.end(), same), entries.end());
  return entries;
}

}  // namespace

LaunchReport launch_trace(const Globals& globals, const Engine& engine, Tools& tools,
                          std::span<const TraceEntry> trace) {
  const Interrupt interrupt;
  const cuda::Context::Scope scope(tools.context);
  const cuda::Stream stream;
  const Stage stage(engine, tools, stream, trace);
  StatusLine line(!globals.json && !globals.quiet && is_terminal());
  LaunchReport report;
  for (auto& each : report.host_ns) each.reserve(trace.size());
  Runs runs(stream, report);
  std::size_t launched = 0;
  try {
    for (; launched < trace.size(); ++launched) {
      if (launched % batch == 0) {
        stop_if_asked("launching", launched, trace.size());
        line.show(fmt::format("launching {} {}/{}",
                              bar(static_cast<double>(launched), static_cast<double>(trace.size()), replay_bar_width),
                              launched, trace.size()));
        runs.end();
      }
      runs.launch(stage.launches[launched]);
    }
    runs.end();
  } catch (const Error& failure) {
    if (failure.kind() == ErrorKind::interrupted) throw;
    runs.name(failure, trace, launched);
  }
  report.stats = engine.stats();
  return report;
}

VerifyReport verify_trace(const Globals& globals, const Engine& engine, Tools& tools,
                          std::span<const TraceEntry> trace) {
  const Interrupt interrupt;
  const cuda::Context::Scope scope(tools.context);
  const cuda::Stream stream;
  StatusLine line(!globals.json && !globals.quiet && is_terminal());
  VerifyReport report;
  std::optional<tune::VerificationCase> tensors;
  const TraceEntry* last = nullptr;
  const auto entries = in_order_of_cases(trace);
  for (const TraceEntry* entry : entries) {
    const auto seed = static_cast<std::uint64_t>(++report.verified);
    stop_if_asked("verifying", static_cast<std::size_t>(report.verified), entries.size());
    line.show(
        fmt::format("verifying {} {}/{}  {} wrong",
                    bar(static_cast<double>(report.verified), static_cast<double>(entries.size()), replay_bar_width),
                    report.verified, entries.size(), report.wrong.size()));
    try {
      for (const std::size_t each : tune::cases_timed_last(*entry->op)) {
        tune::Placement placement;
        placement.prepare_case = each;
        if (tensors && last->op == entry->op && case_of(*last) == case_of(*entry)) {
          tensors->retarget(entry->problem, seed, stream.handle(), placement);
        } else {
          tensors.reset();
          tensors.emplace(manifest::Site(*entry->op, tools.facts()), entry->problem, tools.arch(), tools.cubins, seed,
                          stream.handle(), placement);
        }
        last = entry;
        tensors->poison(stream.handle());
        engine.op(entry->op->name).launch(entry->problem, tensors->arguments(), stream.handle());
        const tune::Check check = tensors->check(stream.handle());
        if (check.right) continue;
        report.wrong.push_back({entry, check.reason + tune::inputs_text(*entry->op, each)});
        break;
      }
    } catch (const Error& failure) {
      if (failure.kind() == ErrorKind::interrupted) throw;
      throw Error(failure.kind(), fmt::format("verifying {}: {}", name_of(trace, *entry), failure.what()));
    }
  }
  return report;
}

}  // namespace kiln::cli
