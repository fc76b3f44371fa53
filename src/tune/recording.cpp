#include "tune/recording.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "kiln/error.hpp"
#include "store/json.hpp"

namespace kiln::tune {

/// A bench that keeps what it gives.
class Recording::Sampled final : public Bench {
 public:
  Sampled(Recording& recording, std::unique_ptr<Bench> bench) : recording_(recording), bench_(std::move(bench)) {}

  void set_sizes(std::vector<Problem> sizes) override {
    sizes_ = sizes;
    bench_->set_sizes(std::move(sizes));
  }
  Admission admit(std::size_t candidate, const Trial& trial) override {
    Admission admission = bench_->admit(candidate, trial);
    recording_.admitted(trial, admission);
    candidates_.insert_or_assign(candidate, trial.variant);
    return admission;
  }
  std::vector<Samples> sample(std::span<const Point> points, std::int64_t rounds) override {
    return kept(points, bench_->sample(points, rounds), false);
  }
  std::vector<Samples> sample_chains(std::span<const Point> points, std::int64_t rounds) override {
    return kept(points, bench_->sample_chains(points, rounds), true);
  }
  void warm_up(Point point, std::int64_t runs) override { bench_->warm_up(point, runs); }
  [[nodiscard]] bool needs_rest() const override { return bench_->needs_rest(); }
  void drop(std::size_t candidate) override { bench_->drop(candidate); }
  [[nodiscard]] double prepared_ns() const override { return bench_->prepared_ns(); }

 private:
  std::vector<Samples> kept(std::span<const Point> points, std::vector<Samples> samples, bool chain) {
    const manifest::Op& op = *recording_.request_.bucket.op;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const manifest::Variant& variant = candidates_.at(points[i].candidate);
      const Problem& at = sizes_[points[i].size];
      recording_.sampled(point_name(op, variant, at) + (chain ? " chain" : ""),
                         {{"implementation", variant.implementation->name},
                          {"config", manifest::to_string(*variant.implementation, variant.config)},
                          {"at", manifest::to_string(op, at)},
                          {"chain", chain}},
                         samples[i]);
    }
    return samples;
  }

  Recording& recording_;
  std::unique_ptr<Bench> bench_;
  std::vector<Problem> sizes_;
  std::map<std::size_t, manifest::Variant> candidates_;
};

/// Libraries whose answers are kept.
class Recording::Proposed final : public Libraries {
 public:
  explicit Proposed(Recording& recording) : recording_(recording) {}

  std::vector<manifest::Config> candidates(const manifest::Site& site, const manifest::Implementation& implementation,
                                           const Problem& at, std::size_t at_most) override {
    auto configs = recording_.machine_.libraries().candidates(site, implementation, at, at_most);
    SampleJson texts = SampleJson::array();
    for (const manifest::Config& each : configs) texts.push_back(manifest::to_string(implementation, each));
    recording_.line_["proposals"].push_back({{"implementation", implementation.name},
                                             {"at", manifest::to_string(*site.op, at)},
                                             {"most", at_most},
                                             {"configs", std::move(texts)}});
    return configs;
  }
  std::optional<std::string> why_refused(const manifest::Site& site, const manifest::Variant& variant,
                                         const Problem& at) override {
    auto why = recording_.machine_.libraries().why_refused(site, variant, at);
    if (why)
      recording_.line_["refusals"].push_back({{"implementation", variant.implementation->name},
                                              {"at", manifest::to_string(*site.op, at)},
                                              {"config", manifest::to_string(*variant.implementation, variant.config)},
                                              {"why", *why}});
    return why;
  }

 private:
  Recording& recording_;
};

std::string point_name(const manifest::Op& op, const manifest::Variant& variant, const Problem& at) {
  return fmt::format("{} | {}", variant.name(), manifest::to_string(op, at));
}

SampleJson to_samples_json(const store::Record& record) {
  SampleJson choices = SampleJson::array();
  for (const store::Choice& each : record.choices)
    choices.push_back({{"role", to_string(each.role)},
                       {"sizes", each.sizes},
                       {"implementation", each.implementation},
                       {"config", each.config}});
  return choices;
}

Recording::Recording(const TuneRequest& request, Machine& machine)
    : request_(request),
      machine_(machine),
      libraries_(std::make_unique<Proposed>(*this)),
      line_{{"op", request.bucket.op->name},
            {"bucket", manifest::to_string(*request.bucket.op, request.bucket.edge)},
            {"key", request.bucket.key()},
            {"device_class", request.bucket.device->device_class()},
            {"device", request.device.name},
            {"driver", request.device.driver_version},
            {"arch", request.arch},
            {"regime", manifest::to_string(request.bucket.regime)},
            {"strategy", to_string(request.search.strategy)},
            {"trials", request.search.trials},
            {"seed", request.search.seed},
            {"compiles_at_once", machine.compiles_at_once()},
            {"out_of_time", false},
            {"near", SampleJson::array()},
            {"uncompiled", SampleJson::object()},
            {"proposals", SampleJson::array()},
            {"refusals", SampleJson::array()},
            {"admissions", SampleJson::array()},
            {"points", SampleJson::array()}} {}

Recording::~Recording() = default;

std::vector<store::Record> Recording::near_records(std::size_t at_most) {
  std::vector<store::Record> near = machine_.near_records(at_most);
  for (const store::Record& each : near) line_["near"].push_back(SampleJson::parse(store::to_json(each)));
  return near;
}

Libraries& Recording::libraries() { return *libraries_; }

answer::KeyedCubin Recording::compiled(const jit::Specialisation& specialisation) try {
  return machine_.compiled(specialisation);
} catch (const std::exception& error) {
  line_["uncompiled"][specialisation.label] = error.what();
  throw;
}

std::unique_ptr<Bench> Recording::bench() { return std::make_unique<Sampled>(*this, machine_.bench()); }

void Recording::note_time_limit() { line_["out_of_time"] = true; }

void Recording::admitted(const Trial& trial, const Admission& admission) {
  line_["admissions"].push_back({{"implementation", trial.variant.implementation->name},
                                 {"config", manifest::to_string(*trial.variant.implementation, trial.variant.config)},
                                 {"at", manifest::to_string(*request_.bucket.op, trial.at)},
                                 {"verdict", to_string(admission.verdict)},
                                 {"reason", admission.reason},
                                 {"registers", admission.registers},
                                 {"spill_bytes", admission.spill_bytes}});
}

void Recording::sampled(const std::string& name, SampleJson point, const Samples& samples) {
  SampleJson& points = line_["points"];
  const auto [place, is_new] = points_.emplace(name, points.size());
  if (is_new) {
    point["ns"] = SampleJson::array();
    points.push_back(std::move(point));
  }
  SampleJson& kept = points[place->second];
  for (const double ns : samples.ns) kept["ns"].push_back(ns);  // what is no number becomes null
  if (!samples.failure.empty()) kept["failure"] = samples.failure;
}

team::Descriptor open_samples(const std::filesystem::path& file) {
  // Opening a FIFO would wait for a reader.
  team::Descriptor opened(open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644));
  struct stat found {};
  if (opened && fstat(opened.get(), &found) == 0 && (S_ISREG(found.st_mode) || S_ISCHR(found.st_mode))) return opened;
  throw Error(ErrorKind::io,
              fmt::format("the samples of a tune cannot be written to {}: {}; name a file that can", file.string(),
                          opened || errno == ENXIO ? "it is a pipe" : std::strerror(errno)));
}

std::string Recording::append_to(const team::Descriptor& samples, const store::Record& record) const {
  SampleJson whole = line_;
  whole["choices"] = to_samples_json(record);
  const std::string text = whole.dump(-1, ' ', false, SampleJson::error_handler_t::replace) + '\n';
  if (flock(samples.get(), LOCK_EX) != 0) return std::strerror(errno);  // other processes tune on other devices
  std::string why;
  for (std::size_t done = 0; why.empty() && done < text.size();) {
    const ssize_t count = write(samples.get(), text.data() + done, text.size() - done);
    if (count > 0)
      done += static_cast<std::size_t>(count);
    else if (count == 0 || errno != EINTR)
      why = count == 0 ? "nothing was written" : std::strerror(errno);
  }
  flock(samples.get(), LOCK_UN);
  return why;
}

}  // namespace kiln::tune
