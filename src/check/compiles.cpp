#include "check/compiles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "check/argument_types.hpp"
#include "check/compile_log.hpp"
#include "check/kernels.hpp"
#include "jit/compile_pool.hpp"
#include "jit/executable.hpp"
#include "jit/parameters.hpp"
#include "kiln/error.hpp"
#include "manifest/kernel_name.hpp"

namespace kiln::check {
namespace {

using manifest::Pass;

/// A busy machine is no mistake of an op.
constexpr std::chrono::minutes slowest_compile{10};

/// One compile, with all that runs the same machine code.
struct Job {
  jit::Specialisation code;
  const Compiled* of;
  std::span<const Pass> passes;
  const manifest::TomlValue* tables;  // of the passes
  std::string file;                   // of the manifest
  std::vector<std::int64_t> frame;
  std::string at;
  bool is_default = false;
  PassOf whose = PassOf::implementation;
  std::shared_future<jit::Cubin> cubin{};
};

const manifest::TomlValue* table_of(const Job& job, std::size_t pass) {
  return job.tables != nullptr && pass < job.tables->items.size() ? &job.tables->items[pass] : nullptr;
}

manifest::Line line_of(const Job& job, std::size_t pass, std::string_view key) {
  const manifest::TomlValue* const table = table_of(job, pass);
  const manifest::TomlValue* const value = table == nullptr ? nullptr : table->find(key);
  return value == nullptr ? job.passes[pass].line : value->line;
}

/// The passes that run, in the order of the cubin's names.
std::vector<std::size_t> passes_of(const Job& job) {
  std::vector<std::size_t> run;
  for (std::size_t i = 0; i < job.passes.size(); ++i)
    if (!job.passes[i].when || job.passes[i].when->evaluate(job.frame).truth()) run.push_back(i);
  return run;
}

/// Which compiles there are, each machine code once.
class Jobs {
 public:
  Jobs(const manifest::Op& op, const Lines& lines, std::size_t most) : op_(op), lines_(lines), most_(most) {}

  void add(const Compiled& of) {
    taken_ = 0;
    if (of.implementation != nullptr)
      add_implementation(of);
    else
      add_of_op(of);
  }
  [[nodiscard]] std::vector<Job>& all() noexcept { return all_; }

 private:
  void add_implementation(const Compiled& of) {
    const manifest::Implementation& implementation = *of.implementation;
    if (!implementation.has_kernels()) return;
    const manifest::Site site(op_, of.target.facts);
    const auto add_at = [&](const Problem& problem, const manifest::Config& config) {
      const manifest::Variant variant{&implementation, config};
      Job job{jit::specialise(site, variant, problem, of.target.arch),
              &of,
              implementation.passes,
              lines_.of(implementation).find("pass"),
              implementation.file,
              launch_frame(site, variant, problem),
              text_of(op_, problem, variant, of.target)};
      job.is_default = config == implementation.default_config;
      add(std::move(job));
    };
    // Each type first, then corners of the configs, then each choice.
    std::set<std::pair<std::size_t, std::uint8_t>> types;
    for (const Trial& trial : of.trials->usual) {
      bool is_new = false;
      for (std::size_t i = 0; i < op_.selections.size(); ++i)
        if (op_.selections[i].is_type()) is_new |= types.emplace(i, trial.problem.selections[i]).second;
      if ((is_new || &trial == &of.trials->usual.front()) && !trial.configs.empty())
        add_at(trial.problem, trial.configs.front());
    }
    if (of.trials->usual.empty()) return;
    const Trial& first = of.trials->usual.front();
    for (const manifest::Config& config : first.configs) add_at(first.problem, config);
    for (const Trial& trial : of.trials->usual)
      if (!trial.configs.empty()) add_at(trial.problem, trial.configs.front());
  }

  void add_of_op(const Compiled& of) {
    const manifest::Site site(op_, of.target.facts);
    const std::string file = manifest::shown_file(op_, manifest::op_file);
    std::vector<Problem> problems;
    std::set<std::pair<std::size_t, std::uint8_t>> covered;  // selection and value
    for (const Problem& each : allowed_selections(op_)) {
      bool is_new = problems.empty();
      for (std::size_t i = 0; i < op_.selections.size(); ++i) is_new |= covered.emplace(i, each.selections[i]).second;
      if (is_new) problems.push_back(at_size(op_, each, 1024));
    }
    for (const Problem& problem : problems) {
      const auto frame = launch_frame(site, {}, problem);
      const std::string at = text_of(op_, problem, {}, of.target);
      Job job{jit::specialise_reference(op_, frame, of.target.arch),
              &of,
              op_.reference,
              value_at(lines_.op(), {"reference", "pass"}),
              file,
              frame,
              at};
      job.whose = PassOf::reference;
      add(std::move(job));
      for (std::size_t each = 0; op_.prepare && each < op_.prepare->cases.size(); ++each) {
        auto prepared = frame;
        prepared.push_back(0);  // the seed
        prepared.push_back(static_cast<std::int64_t>(each));
        Job preparation{jit::specialise_prepare(op_, prepared, of.target.arch),
                        &of,
                        op_.prepare->passes,
                        value_at(lines_.op(), {"prepare", "pass"}),
                        file,
                        prepared,
                        at};
        preparation.whose = PassOf::prepare;
        if (!preparation.code.name_expressions.empty()) add(std::move(preparation));
      }
    }
  }

  void add(Job job) {
    std::string key = job.code.entry + " " + job.code.arch;
    for (const std::string& each : job.code.name_expressions) key += "\n" + each;
    if (taken_ >= most_ || !known_.insert(std::move(key)).second) return;
    ++taken_;
    all_.push_back(std::move(job));
  }

  const manifest::Op& op_;
  const Lines& lines_;
  std::size_t most_, taken_ = 0;
  std::set<std::string> known_;
  std::vector<Job> all_;
};

class CubinCheck {
 public:
  CubinCheck(const manifest::Op& op, const Job& job, Findings& findings) : op_(op), job_(job), findings_(findings) {}

  void check(const jit::Cubin& cubin) {
    const std::vector<std::size_t> run = passes_of(job_);
    std::vector<TypedPass> typed;
    for (std::size_t i = 0; i < run.size() && i < cubin.lowered_names.size(); ++i) {
      const std::string& name = cubin.lowered_names[i];
      const auto types = parameter_types(name);
      const auto sizes = jit::parameter_sizes(cubin.image, name);
      const bool are_wide_enough = !sizes || check_arguments(run[i], *sizes);
      if (types && are_wide_enough) check_types(run[i], *types);
      if (const auto needs = jit::resources_of(cubin.image, name)) check_resources(run[i], *needs);
      typed.push_back({run[i], &job_.passes[run[i]], types.value_or(std::vector<ParameterType>())});
    }
    if (job_.whose == PassOf::prepare) return;
    for (const UnwrittenMistake& each : unwritten(op_, job_.of->implementation, job_.frame, typed))
      add(Severity::error, each.pass, "args", "unwritten_" + each.name, each.what,
          "take a pointer to what is not const where it is written");
  }

 private:
  void add(Severity severity, std::size_t pass, std::string_view key, std::string kind, std::string what,
           std::string remedy) {
    findings_.add(
        {severity, std::move(kind), job_.file, line_of(job_, pass, key), std::move(what), std::move(remedy), job_.at});
  }

  /// Whether all that differs is that axes are taken as 32 bits.
  bool takes_narrow_axis(const Pass& pass, std::span<const std::int64_t> sizes) const {
    if (pass.arguments.size() != sizes.size()) return false;
    bool any = false;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (jit::passed_bytes(op_, pass.arguments[i]) == sizes[i]) continue;
      if (pass.arguments[i].kind != manifest::ArgumentKind::axis || sizes[i] != 4) return false;
      any = true;
    }
    return any;
  }

  /// Returns whether number and widths are right.
  bool check_arguments(std::size_t index, std::span<const std::int64_t> sizes) {
    const Pass& pass = job_.passes[index];
    std::vector<std::string> mistakes = jit::argument_mistakes(op_, job_.of->implementation, pass, sizes);
    // A missing or further argument shifts those after it, so that only the first difference is sure.
    if (pass.arguments.size() != sizes.size() && mistakes.size() > 2)
      mistakes.erase(mistakes.begin() + 1, mistakes.end() - 1);
    const bool are_narrow = takes_narrow_axis(pass, sizes);
    for (std::size_t i = 0; i < mistakes.size(); ++i)
      add(Severity::error, index, "args", fmt::format("args_{}", i),
          fmt::format("the kernel '{}' {}", pass.kernel, mistakes[i]),
          are_narrow ? "axes are long long: declare the kernel's parameter so"
                     : "make 'args' what the kernel is declared with");
    return mistakes.empty();
  }

  void check_types(std::size_t index, std::span<const ParameterType> types) {
    const Pass& pass = job_.passes[index];
    for (const TypeMistake& each : type_mistakes(op_, pass, job_.whose, job_.frame, types))
      add(Severity::error, index, "args", fmt::format("type_{}", each.argument),
          fmt::format("the kernel '{}' {}", pass.kernel, each.what), "give the arguments the kernel's order and types");
  }

  void check_resources(std::size_t index, const jit::Resources& needs) {
    const Pass& pass = job_.passes[index];
    const std::int64_t threads = threads_of(pass, job_.frame);
    if (threads > needs.max_threads && threads <= most_threads)
      add(Severity::error, index, "block", "launch_bounds",
          fmt::format(
              "the block has {} threads, and the kernel takes at most {} by __launch_bounds__ and its {} registers",
              threads, needs.max_threads, needs.registers),
          "give __launch_bounds__ the block's threads");
    const manifest::Value dynamic = pass.shared.evaluate(job_.frame);
    const std::int64_t most = job_.of->target.facts.shared_per_block();
    if (dynamic.ok() && dynamic.number <= most && dynamic.number + needs.static_shared_bytes > most)
      add(Severity::error, index, "shared", "static_shared",
          fmt::format("{} bytes of static and {} of dynamic shared memory", needs.static_shared_bytes, dynamic.number),
          fmt::format("expected at most {} together: bound it by a constraint", most));
    if (pass.cooperative) check_residency(index, threads, dynamic.number + needs.static_shared_bytes, needs.registers);
    if (needs.spill_bytes > 0 && job_.is_default)
      add(Severity::warning, index, "kernel", "local",
          fmt::format("the default keeps {} bytes of each thread in local memory, with {} registers", needs.spill_bytes,
                      needs.registers),
          "index arrays by constants, or choose a default that needs fewer registers");
  }

  /// All blocks of a cooperative launch are on the device at once.
  void check_residency(std::size_t index, std::int64_t threads, std::int64_t shared, std::int64_t registers) {
    const manifest::DeviceFacts& facts = job_.of->target.facts;
    if (threads < 1) return;
    std::int64_t blocks = 1;
    for (const manifest::Expression& each : job_.passes[index].grid)
      if (__builtin_mul_overflow(blocks, each.evaluate(job_.frame).number, &blocks)) return;
    const std::int64_t of_warp = (std::max<std::int64_t>(registers, 1) * 32 + 255) / 256 * 256;
    const std::int64_t warps = (threads + 31) / 32;
    const std::int64_t at_once =
        std::min({facts.threads_per_sm() / (warps * 32), facts.registers_per_sm() / (of_warp * warps),
                  facts.shared_per_sm() / (shared + 1024)}) *
        facts.sm_count();
    if (blocks > at_once)
      add(Severity::error, index, "grid", "cooperative",
          fmt::format("a cooperative launch of {} blocks, where the device holds {} at once", blocks, at_once),
          "bound the grid by sm_count, and let blocks go on to further work");
  }

  const manifest::Op& op_;
  const Job& job_;
  Findings& findings_;
};

/// Adds what the compiler says, by lines. Returns whether there were any.
bool add_log_of(const Job& job, std::string_view said, Findings& findings) {
  std::vector<NamedPass> named;
  const std::vector<std::size_t> run = passes_of(job);
  for (std::size_t i = 0; i < run.size() && i < job.code.name_expressions.size(); ++i)
    named.push_back({job.code.name_expressions[i], job.file, line_of(job, run[i], "kernel")});
  return add_log(said, named, job.at, findings);
}

manifest::Line line_of_first(const Job& job) {
  const std::vector<std::size_t> run = passes_of(job);
  return run.empty() ? manifest::Line{1} : line_of(job, run.front(), "kernel");
}

/// A mistake in a template can end the compiler when it looks for a kernel's name. Without names it says what is wrong.
bool add_errors_without_names(const Job& job, jit::CompilePool& pool, const std::string& compiler,
                              Findings& findings) try {
  jit::Specialisation sources = job.code;
  sources.name_expressions.clear();
  static_cast<void>(pool.submit(jit::cubin_key(sources, compiler), sources).get());
  return false;
} catch (const Error& error) {
  if (error.kind() != ErrorKind::compile_failed) throw;
  return add_log(error.what(), {}, job.at, findings);
}

void add_failure(const Job& job, const std::string& said, jit::CompilePool& pool, const std::string& compiler,
                 Findings& findings) {
  if (add_log_of(job, said, findings) || add_errors_without_names(job, pool, compiler, findings)) return;
  findings.add({Severity::error, "compile", job.file, line_of_first(job), said,
                "mend the source, or rule the types or the config out", job.at});
}

}  // namespace

std::size_t check_compiles(const manifest::Op& op, const Lines& lines, std::span<const Compiled> all,
                           const CompileChoice& choice, Findings& findings) {
  Jobs jobs(op, lines, choice.most);
  for (const Compiled& each : all) jobs.add(each);
  if (jobs.all().empty()) return 0;
  const std::string compiler = jit::compiler_identity();
  jit::CompilePool pool({.program = choice.worker, .limit = slowest_compile});
  const auto key_of = [&](const Job& job) { return jit::cubin_key(job.code, compiler); };
  std::size_t compiles = 0;
  for (Job& job : jobs.all()) {
    try {
      job.cubin = pool.submit(key_of(job), job.code);
    } catch (const Error& error) {  // of its sources, before any compile
      if (error.kind() != ErrorKind::compile_failed) throw;
      findings.add(source_finding(error.what(), job.file, line_of_first(job)));
    }
  }
  for (const Job& job : jobs.all()) {
    if (!job.cubin.valid()) continue;
    if (choice.on_compile) choice.on_compile(job.code.label);
    try {
      const jit::Cubin& cubin = job.cubin.get();
      ++compiles;
      static_cast<void>(add_log(cubin.log, {}, job.at, findings));
      CubinCheck(op, job, findings).check(cubin);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::compile_failed) throw;
      add_failure(job, error.what(), pool, compiler, findings);
    }
  }
  return compiles;
}

}  // namespace kiln::check
