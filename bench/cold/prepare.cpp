#include "cold/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "answer/cubins.hpp"
#include "cold/norm_case.hpp"
#include "jit/compile_pool.hpp"
#include "jit/executable.hpp"
#include "kiln/kiln.hpp"
#include "manifest/key.hpp"
#include "manifest/region.hpp"
#include "process/child.hpp"
#include "store/transfer.hpp"

namespace kiln::bench {
namespace {

namespace fs = std::filesystem;

constexpr int row_counts = 15;

/// Every legal config of every implementation, in the manifests' order.
std::vector<std::pair<const manifest::Implementation*, manifest::Config>> choices(const manifest::Op& op,
                                                                                  const Problem& bucket,
                                                                                  const manifest::DeviceFacts& device) {
  std::vector<std::pair<const manifest::Implementation*, manifest::Config>> all;
  for (const manifest::Implementation& each : op.implementations)
    if (!manifest::why_not_eligible({op, device}, each, bucket))
      for (manifest::Config& config : manifest::search_space({op, device}, each, bucket))
        all.emplace_back(&each, std::move(config));
  return all;
}

Problem bucket_of(const manifest::Op& op, const PlanProblem& problem) {
  const manifest::Setting settings[] = {
      {"rows", std::to_string(problem.rows)}, {"cols", std::to_string(problem.cols)}, {"dtype", problem.dtype}};
  return manifest::bucket_of(op, manifest::make_problem(op, settings));
}

class PlansFile {
 public:
  PlansFile()
      : context_(0),
        arch_(jit::default_arch(context_.info().facts.sm())),
        compiler_(jit::compiler_identity()),
        pool_({.program = process::find_worker({})}) {}

  void add(const manifest::Op& op, const Problem& bucket, std::size_t draw) {
    const manifest::DeviceFacts& device = context_.info().facts;
    const auto all = choices(op, bucket, device);
    const auto& [implementation, config] = all.at(draw % all.size());
    const auto frame = manifest::Variant{implementation, config}.frame({op, device}, bucket);
    const auto specialisation = jit::specialise(op, *implementation, frame, arch_);
    const manifest::Digest key = jit::cubin_key(specialisation, compiler_);
    if (cubins_.emplace(key, specialisation).second) pool_.submit(key, specialisation);
    store::Record record;
    record.key = manifest::Bucket({op, device, Regime::cold_l2}, bucket).key();
    record.op = op.name;
    record.revision = op.revision;
    record.device_class = device.device_class();
    record.regime = manifest::to_string(Regime::cold_l2);
    record.bucket = manifest::to_string(op, bucket);
    record.baseline_ns = 1;  // nothing was measured
    store::Choice choice;
    choice.sizes = manifest::to_string(op, manifest::whole_of(op, bucket));
    choice.implementation = implementation->name;
    choice.config = manifest::to_string(*implementation, config);
    choice.cost_ns = choice.low_ns = choice.high_ns = 1;
    choice.samples = 1;
    choice.source_digest = manifest::to_hex(jit::source_digest(specialisation));
    choice.compiler = compiler_;
    record.choices.push_back(std::move(choice));
    records_.push_back(std::move(record));
  }

  std::size_t write(const fs::path& file) {
    fs::remove(file);
    std::vector<store::CubinRow> rows;
    for (const auto& [key, specialisation] : cubins_)
      rows.push_back(answer::to_row(specialisation, {key, compiler_, pool_.submit(key, specialisation).get(), false}));
    const auto opened = store::File::open(file, store::Access::read_write);
    opened->put_all(records_, rows);
    opened->write_all([](store::Writer& writer) { writer.seal(); });
    return rows.size();
  }

 private:
  cuda::Context context_;
  std::string arch_, compiler_;
  jit::CompilePool pool_;
  std::map<manifest::Digest, jit::Specialisation> cubins_;
  std::vector<store::Record> records_;
};

}  // namespace

fs::path make_shipped(const fs::path& folder) {
  Options options;
  options.overlay = folder / "tuned.kiln";
  options.search.trials = 4;
  const Engine engine(options);
  const Op op = engine.op("rms_norm");
  op.plan(op.problem({{"rows", norm_rows}, {"cols", norm_cols}, {"dtype", "bf16"}}));
  const auto tuned = store::File::open(*options.overlay, store::Access::read_only);
  store::export_file(*tuned, folder / "shipped.kiln", {}, true);
  return folder / "shipped.kiln";
}

std::vector<PlanProblem> plan_problems(std::size_t count) {
  std::vector<PlanProblem> all;
  for (std::int64_t cols = 512; all.size() < count; cols += 256)
    for (int power = 0; power < row_counts; ++power)
      for (const char* op : {"rms_norm", "softmax"})
        all.push_back({op, std::int64_t{1} << power, cols, power % 2 == 0 ? "bf16" : "f16"});
  all.resize(count);
  return all;
}

std::size_t make_plans(const fs::path& file, std::size_t count) {
  constexpr std::size_t stride = 7919;  // prime: the draws meet every part of a space
  const std::vector<manifest::Op> ops = manifest::load_ops({});
  PlansFile plans;
  std::size_t draw = 0;
  for (const PlanProblem& problem : plan_problems(count)) {
    const auto op = std::find_if(ops.begin(), ops.end(), [&](const auto& each) { return each.name == problem.op; });
    plans.add(*op, bucket_of(*op, problem), draw += stride);
  }
  return plans.write(file);
}

}  // namespace kiln::bench
