#include "tune/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

#include "kiln/error.hpp"
#include "store/fields.hpp"
#include "store/json.hpp"
#include "tune/tune_bucket.hpp"

namespace kiln::tune {
namespace {

struct NotMeasured : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string name_in(const SampleJson& row) {
  return fmt::format("{} {} | {}", row.at("implementation").get<std::string>(), row.at("config").get<std::string>(),
                     row.at("at").get<std::string>());
}

/// The times of a point that were not given yet.
struct Left {
  std::vector<double> ns;
  std::string failure;
  std::size_t given = 0;
  [[nodiscard]] std::size_t count() const noexcept { return ns.size() - given; }
};

/// All that a line answers.
class Answers {
 public:
  explicit Answers(const SampleJson& line) {
    for (const SampleJson& row : line.at("points")) {
      Left left;
      for (const SampleJson& ns : row.at("ns"))
        left.ns.push_back(ns.is_null() ? std::numeric_limits<double>::quiet_NaN() : ns.get<double>());
      left.failure = row.value("failure", "");
      points_.emplace(name_in(row) + (row.at("chain").get<bool>() ? " chain" : ""), std::move(left));
    }
    for (const SampleJson& row : line.at("admissions")) {
      Admission admission;
      admission.verdict =
          store::parse_verdict(row.at("verdict").get<std::string>()).value_or(store::Verdict::not_timed);
      admission.reason = row.at("reason").get<std::string>();
      admission.registers = row.at("registers").get<int>();
      admission.spill_bytes = row.at("spill_bytes").get<std::int64_t>();
      admissions_.emplace(name_in(row),
                          std::move(admission));  // the first: a candidate comes in again only after an ok
    }
  }

  [[nodiscard]] const Admission& admission(const std::string& name) const {
    const auto found = admissions_.find(name);
    if (found == admissions_.end()) throw NotMeasured(name);
    return found->second;
  }
  Left& point(const std::string& name) {
    const auto found = points_.find(name);
    if (found == points_.end()) throw NotMeasured(name);
    return found->second;
  }

 private:
  std::map<std::string, Left> points_;
  std::map<std::string, Admission> admissions_;
};

class ReplayedBench final : public Bench {
 public:
  ReplayedBench(const manifest::Op& op, Answers& answers) : op_(op), answers_(answers) {}

  void set_sizes(std::vector<Problem> sizes) override { sizes_ = std::move(sizes); }
  Admission admit(std::size_t candidate, const Trial& trial) override {
    names_[candidate] = trial.variant.name() + " | ";
    return answers_.admission(names_[candidate] + manifest::to_string(op_, trial.at));
  }
  std::vector<Samples> sample(std::span<const Point> points, std::int64_t rounds) override {
    return taken(points, rounds, "");
  }
  std::vector<Samples> sample_chains(std::span<const Point> points, std::int64_t rounds) override {
    return taken(points, rounds, " chain");
  }
  void warm_up(Point, std::int64_t) override {}
  [[nodiscard]] bool needs_rest() const override { return false; }
  void drop(std::size_t) override {}
  [[nodiscard]] double prepared_ns() const override { return 0; }

 private:
  /// The times that the points got next. A failure ended the recorded rounds of all points that were sampled with it.
  std::vector<Samples> taken(std::span<const Point> points, std::int64_t rounds, const char* suffix) {
    const auto asked = static_cast<std::size_t>(rounds);
    std::vector<Left*> all;
    for (const Point& each : points)
      all.push_back(&answers_.point(names_.at(each.candidate) + manifest::to_string(op_, sizes_[each.size]) + suffix));
    const bool fails =
        std::ranges::any_of(all, [&](const Left* each) { return !each->failure.empty() && each->count() < asked; });
    std::vector<Samples> samples(points.size());
    for (std::size_t i = 0; i < points.size(); ++i) {
      Left& left = *all[i];
      const bool is_legal = !left.ns.empty() || !left.failure.empty();
      if (is_legal && left.count() < asked && !fails)
        throw NotMeasured(fmt::format("{}{}{}, {} more runs than {}", names_.at(points[i].candidate),
                                      manifest::to_string(op_, sizes_[points[i].size]), suffix, asked - left.count(),
                                      left.ns.size()));
      const std::size_t count = std::min(asked, left.count());
      const auto begin = left.ns.begin() + static_cast<std::ptrdiff_t>(left.given);
      samples[i].ns.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
      left.given += count;
      if (fails && left.count() == 0) samples[i].failure = left.failure;
    }
    return samples;
  }

  const manifest::Op& op_;
  Answers& answers_;
  std::vector<Problem> sizes_;
  std::map<std::size_t, std::string> names_;  // of candidates, up to the sizes
};

class ReplayedLibraries final : public Libraries {
 public:
  explicit ReplayedLibraries(const SampleJson& line) {
    for (const SampleJson& row : line.at("proposals"))
      proposals_.emplace(proposal_name(row.at("implementation").get<std::string>(), row.at("at").get<std::string>()),
                         &row);
    for (const SampleJson& row : line.at("refusals")) refusals_.emplace(name_in(row), row.at("why").get<std::string>());
  }

  /// A library's first proposals do not depend on how many are asked for.
  std::vector<manifest::Config> candidates(const manifest::Site& site, const manifest::Implementation& implementation,
                                           const Problem& at, std::size_t at_most) override {
    const std::string name = proposal_name(implementation.name, manifest::to_string(*site.op, at));
    const auto found = proposals_.find(name);
    if (found == proposals_.end() || found->second->at("most").get<std::size_t>() < at_most) throw NotMeasured(name);
    std::vector<manifest::Config> configs;
    for (const SampleJson& text : found->second->at("configs")) {
      const auto config = manifest::parse_config(implementation, text.get<std::string>());
      if (!config) throw NotMeasured(fmt::format("{}, {}", name, text.get<std::string>()));
      if (configs.size() < at_most) configs.push_back(*config);
    }
    return configs;
  }
  std::optional<std::string> why_refused(const manifest::Site& site, const manifest::Variant& variant,
                                         const Problem& at) override {
    const auto found = refusals_.find(point_name(*site.op, variant, at));
    return found == refusals_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  static std::string proposal_name(const std::string& implementation, const std::string& at) {
    return fmt::format("what {} proposes for {}", implementation, at);
  }

  std::map<std::string, const SampleJson*> proposals_;
  std::map<std::string, std::string> refusals_;
};

class ReplayedMachine final : public Machine {
 public:
  ReplayedMachine(const SampleJson& line, const manifest::Op& op)
      : line_(line), op_(op), answers_(line), libraries_(line) {}

  std::vector<store::Record> near_records(std::size_t at_most) override {
    std::vector<store::Record> near;
    for (const SampleJson& each : line_.at("near"))
      if (near.size() < at_most) near.push_back(store::record_from_json(each.dump()));
    return near;
  }
  Libraries& libraries() override { return libraries_; }
  std::size_t compiles_at_once() override { return line_.at("compiles_at_once").get<std::size_t>(); }
  void prefetch(const jit::Specialisation&) override {}
  answer::KeyedCubin compiled(const jit::Specialisation& specialisation) override {
    const SampleJson& uncompiled = line_.at("uncompiled");
    if (const auto found = uncompiled.find(specialisation.label); found != uncompiled.end())
      throw Error(ErrorKind::compile_failed, found->get<std::string>());
    return {};
  }
  std::unique_ptr<Bench> bench() override { return std::make_unique<ReplayedBench>(op_, answers_); }

 private:
  const SampleJson& line_;
  const manifest::Op& op_;
  Answers answers_;
  ReplayedLibraries libraries_;
};

cuda::DeviceInfo device_of(const SampleJson& line) {
  cuda::DeviceInfo device;
  const auto device_class = line.at("device_class").get<std::string>();
  const auto facts = manifest::DeviceFacts::from_device_class(device_class);
  if (!facts) throw Error(ErrorKind::bad_input, fmt::format("the device class '{}' does not parse", device_class));
  device.facts = *facts;
  device.name = line.at("device").get<std::string>();
  device.driver_version = line.at("driver").get<int>();
  return device;
}

Replayed searched(const SampleJson& line, const manifest::Op& op) {
  const auto text = line.at("bucket").get<std::string>();
  const auto bucket = manifest::parse_bucket(op, text);
  if (!bucket) return {Replayed::Outcome::not_measured, fmt::format("{} has no bucket {} any more", op.name, text)};
  if (line.at("out_of_time").get<bool>())
    return {Replayed::Outcome::not_measured, "its time limit ended the search, which depends on a clock"};
  const cuda::DeviceInfo device = device_of(line);
  const auto regime = line.at("regime") == manifest::to_string(Regime::hot_l2) ? Regime::hot_l2 : Regime::cold_l2;
  TuneRequest request{.bucket = {{op, device.facts, regime}, *bucket},
                      .device = device,
                      .arch = line.at("arch").get<std::string>(),
                      .stop_requested = {},
                      .on_event = {}};
  request.search.strategy =
      line.at("strategy") == to_string(Strategy::exhaustive) ? Strategy::exhaustive : Strategy::racing;
  request.search.trials = line.at("trials").get<std::int64_t>();
  request.search.seed = line.at("seed").get<std::uint64_t>();
  ReplayedMachine machine(line, op);
  const SampleJson chosen = to_samples_json(tune_bucket(request, machine).record);
  if (chosen == line.at("choices")) return {};
  return {Replayed::Outcome::other, chosen.dump()};
}

}  // namespace

std::string_view to_string(Replayed::Outcome outcome) noexcept {
  switch (outcome) {
    case Replayed::Outcome::same: return "same";
    case Replayed::Outcome::other: return "other";
    case Replayed::Outcome::not_measured: return "not measured";
  }
  return "";
}

Replayed replay(const SampleJson& line, const manifest::Op& op) try {
  return searched(line, op);
} catch (const NotMeasured& missing) {
  return {Replayed::Outcome::not_measured, missing.what()};
} catch (const SampleJson::exception& error) {
  throw Error(ErrorKind::bad_input, fmt::format("a recorded tune cannot be read: {}", error.what()));
}

SampleJson read_recording(std::string_view text) {
  SampleJson line = SampleJson::parse(text, nullptr, false);
  if (!line.is_object() || !line.contains("op") || !line.contains("points"))
    throw Error(ErrorKind::bad_input,
                "a recorded tune cannot be read: the line is no JSON object with 'op' and 'points'; record it anew");
  return line;
}

}  // namespace kiln::tune
