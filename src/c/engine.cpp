// Engines and what is asked of them.
#include <fmt/format.h>

#include <array>

#include "c/handles.hpp"
#include "c/json.hpp"
#include "c/options.hpp"
#include "c/values.hpp"

namespace kiln::c {
namespace {

constexpr std::array origin_names = {"hot", "overlay", "base", "nearest", "model", "default"};
static_assert(origin_names.size() == origin_count && static_cast<int>(Origin::default_) == KILN_ORIGIN_DEFAULT);

std::vector<Problem> problems_of(const kiln_problem* problems, std::size_t count) {
  given_array(problems, count, "problems");
  std::vector<Problem> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back(read(sized(problems + i, "kiln_problem")));
  return result;
}

void give(const Coverage& found, kiln_coverage* coverage, char** json) {
  char* const text = json == nullptr ? nullptr : text_of(line_of(to_json(found)));
  if (json != nullptr) *json = text;
  if (coverage == nullptr) return;
  coverage->total = found.total;
  coverage->hits = found.hits;
  coverage->gaps = static_cast<std::int64_t>(found.gaps.size());
  coverage->capturable = found.capturable() ? 1 : 0;
}

std::string text_of_fault(const LengthFault& fault) {
  if (fault.tensor.empty())
    return fmt::format("{}: the length {} of axis '{}' in device memory is not from 0 to {}", fault.op, fault.length,
                       fault.axis, fault.bound);
  return fmt::format("{}: the index {} in tensor '{}' is not from 0 to below {}", fault.op, fault.length, fault.tensor,
                     fault.bound);
}

void give(const Stats& found, kiln_stats& stats) {
  stats.hot = found.hot;
  stats.overlay = found.overlay;
  stats.base = found.base;
  stats.nearest = found.nearest;
  stats.model = found.model;
  stats.default_ = found.default_;
  stats.tunes = found.tunes;
  stats.compiles = found.compiles;
  stats.compiles_ahead = found.compiles_ahead;
  stats.stale = found.stale;
  stats.constraint_fallbacks = found.constraint_fallbacks;
  stats.quarantined = found.quarantined;
  stats.waiting = found.waiting;
  stats.uncounted = found.uncounted;
  stats.workspace_bytes = found.workspace_bytes;
  stats.tuning_ns = found.tuning_ns;
  stats.shared_hits = found.shared_hits;
  stats.shared_misses = found.shared_misses;
  stats.shared_errors = found.shared_errors;
  stats.shared_bytes = found.shared_bytes;
  stats.miss_absent = found.misses.absent;
  stats.miss_unusable = found.misses.unusable;
  stats.miss_damaged = found.misses.damaged;
  stats.miss_unreadable = found.misses.unreadable;
  stats.miss_no_cubin = found.misses.no_cubin;
  stats.miss_refused_cubin = found.misses.refused_cubin;
}

}  // namespace
}  // namespace kiln::c

using namespace kiln::c;

kiln_status kiln_engine_create(const kiln_options* options, kiln_engine** engine) {
  return guarded([&] {
    given(engine, "engine");
    const kiln::Options chosen = options == nullptr ? kiln::Options() : options_of(sized(options, "kiln_options"));
    *engine = new kiln_engine{kiln::Engine(chosen)};
  });
}

void kiln_engine_destroy(kiln_engine* engine) { delete engine; }

kiln_status kiln_engine_ops(kiln_engine* engine, char** names) {
  return guarded([&] {
    given(names, "names");
    *names = lines_of(given(engine, "engine").engine.ops());
  });
}

kiln_status kiln_engine_op(kiln_engine* engine, const char* name, kiln_op** op) {
  return guarded([&] {
    given(op, "op");
    *op = new kiln_op(given(engine, "engine").engine.op(&given(name, "name")));
  });
}

const char* kiln_origin_name(int32_t origin) {
  return origin >= 0 && static_cast<std::size_t>(origin) < origin_names.size()
             ? origin_names[static_cast<std::size_t>(origin)]
             : "unknown";
}

kiln_status kiln_engine_stats(kiln_engine* engine, kiln_stats* stats) {
  return guarded([&] { give(given(engine, "engine").engine.stats(), sized(stats, "kiln_stats")); });
}

kiln_status kiln_engine_warnings(kiln_engine* engine, char** warnings) {
  return guarded([&] {
    given(warnings, "warnings");
    *warnings = lines_of(given(engine, "engine").engine.warnings());
  });
}

kiln_status kiln_engine_workload(kiln_engine* engine, char** text) {
  return guarded([&] { given(text, "text") = text_of(given(engine, "engine").engine.workload()); });
}

kiln_status kiln_engine_prepare(kiln_engine* engine, kiln_op* op, const kiln_problem* problems, size_t count,
                                kiln_stream stream, kiln_coverage* coverage, char** json) {
  return guarded([&] {
    if (coverage != nullptr) sized(coverage, "kiln_coverage");
    give(given(engine, "engine").engine.prepare(given(op, "op").op, problems_of(problems, count), stream), coverage,
         json);
  });
}

kiln_status kiln_engine_coverage(kiln_engine* engine, kiln_op* op, const kiln_problem* problems, size_t count,
                                 kiln_stream stream, kiln_coverage* coverage, char** json) {
  return guarded([&] {
    if (coverage != nullptr) sized(coverage, "kiln_coverage");
    give(given(engine, "engine").engine.coverage(given(op, "op").op, problems_of(problems, count), stream), coverage,
         json);
  });
}

kiln_status kiln_engine_explain(kiln_engine* engine, kiln_op* op, const kiln_problem* problem, int32_t as_text,
                                char** explanation) {
  return guarded([&] {
    given(explanation, "explanation");
    const kiln::Explanation found =
        given(engine, "engine").engine.explain(given(op, "op").op, read(sized(problem, "kiln_problem")));
    *explanation = text_of(as_text != 0 ? text_of(found) : line_of(to_json(found)));
  });
}

kiln_status kiln_engine_wait_for_tunes(kiln_engine* engine, int64_t limit_ms, int32_t* ended) {
  return guarded([&] {
    given(ended, "ended");
    *ended = given(engine, "engine").engine.wait_for_tunes(std::chrono::milliseconds(limit_ms)) ? 1 : 0;
  });
}

kiln_status kiln_engine_trim(kiln_engine* engine, int64_t* bytes) {
  return guarded([&] {
    const std::int64_t freed = given(engine, "engine").engine.trim();
    if (bytes != nullptr) *bytes = freed;
  });
}

kiln_status kiln_engine_check(kiln_engine* engine, kiln_stream stream, char** fault) {
  return guarded([&] {
    given(fault, "fault");
    const auto found = given(engine, "engine").engine.check(stream);
    *fault = found ? text_of(text_of_fault(*found)) : nullptr;
  });
}
