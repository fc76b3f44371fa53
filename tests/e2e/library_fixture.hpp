// gemm where cuBLASLt competes: a call of it that is checked, an overlay in which the library won, and processes that open it.
// tests/fake_cublaslt/cublaslt.cpp says what its four algorithms are.
#pragma once

#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "e2e/command.hpp"

namespace e2e {

inline constexpr const char* fastest =
    "algorithm=4 tile=24 stages=8 splits=2 reduction=2 swizzle=1 custom=7 inner=3 cluster=5 extra=0";

inline kiln::Options gemm_options(const std::filesystem::path& overlay,
                                  kiln::MissPolicy on_miss = kiln::MissPolicy::tune) {
  kiln::Options chosen = options(overlay, on_miss);
  chosen.search.trials = 5;  // the baseline, the library's first two, and two more
  return chosen;
}

/// y = scale x w^T + bias in f32, checked after each launch.
class GemmCall {
 public:
  static constexpr std::int64_t n = 48, k = 40, bound = 64;

  explicit GemmCall(const kiln::Engine& engine, std::int64_t m = bound, const char* activation = "none")
      : op(engine.op("gemm")),
        problem(op.problem({{"m", m}, {"n", n}, {"k", k}, {"dtype", "f32"}, {"activation", activation}})),
        rows_(m),
        relu_(activation == std::string_view("relu")) {
    arguments =
        op.arguments({{"x", x_.address()}, {"w", w_.address()}, {"bias", bias_.address()}, {"y", y_.address()}});
    poison();
  }
  kiln::Origin launch(kiln::Stream stream) const {
    poison();
    const kiln::Origin origin = op.launch(problem, arguments, stream);
    check(rows_);
    return origin;
  }
  void poison() const { y_.upload(std::vector<float>(bound * n, NAN)); }
  /// The rows up to `rows` are computed, the others are as they were.
  void check(std::int64_t rows, bool biased = true, double scale = 1) const {
    const std::vector<float> x = ramp(bound * k), w = ramp(n * k), bias = ramp(n), got = y_.download();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < bound * n; ++i) {
      const float value = got[static_cast<std::size_t>(i)];
      const std::int64_t row = i / n, column = i % n;
      double sum = biased ? static_cast<double>(bias[static_cast<std::size_t>(column)]) : 0;
      for (std::int64_t j = 0; j < k; ++j)
        sum += scale * static_cast<double>(x[static_cast<std::size_t>(row * k + j)]) *
               static_cast<double>(w[static_cast<std::size_t>(column * k + j)]);
      const double expected = relu_ && sum < 0 ? 0 : sum;
      const bool right = row < rows ? std::fabs(static_cast<double>(value) - expected) <= 1e-3 * (1 + std::fabs(sum))
                                    : std::isnan(value);
      wrong += right ? 0 : 1;
    }
    CAPTURE(rows);
    CHECK(wrong == 0);
  }
  [[nodiscard]] std::string implementation() const { return std::string(op.plan(problem).implementation()); }

  kiln::Op op;
  kiln::Problem problem;
  kiln::Arguments arguments;

 private:
  std::int64_t rows_;
  bool relu_;
  Floats x_{ramp(bound * k)}, w_{ramp(n * k)}, bias_{ramp(n)}, y_{static_cast<std::size_t>(bound * n)};
};

inline kiln::Options gemm_child_options() {
  const std::map<std::string, kiln::MissPolicy> policies = {
      {"tune", kiln::MissPolicy::tune}, {"nearest", kiln::MissPolicy::nearest}, {"error", kiln::MissPolicy::error}};
  kiln::Options chosen = gemm_options(std::getenv("E2E_OVERLAY"), policies.at(std::getenv("E2E_POLICY")));
  if (const char* base = std::getenv("E2E_BASE")) chosen.bases = {base};
  return chosen;
}

inline const std::string no_library = "KILN_CUBLASLT_LIBRARY=none";

inline std::string in_child(const TemporaryFolder& folder, const char* policy, const std::string& library) {
  return variable("E2E_OVERLAY", folder / "overlay.kiln") + variable("E2E_POLICY", policy) + library;
}

/// The records of the overlay, each line of their text as `edit` leaves it; without their machine code.
inline void edit_records(const TemporaryFolder& folder, const std::function<void(std::string&)>& edit) {
  const std::string text = (folder / "records.jsonl").string();
  expect(0, "kiln cache export --text --replace -o " + text + globals(folder));
  std::ifstream read(text);
  std::string edited;
  for (std::string line; std::getline(read, line);) {
    edit(line);
    edited += line + "\n";
  }
  std::ofstream(text) << edited;
  std::filesystem::remove(folder / "overlay.kiln");
  expect(0, "kiln cache import " + text + own_overlay(folder));
}

/// The one bucket that tune_in tunes.
inline std::string gemm_workload(const TemporaryFolder& folder) {
  std::string path = (folder / "workload.toml").string();
  std::ofstream(path)
      << "[[workload]]\nop = \"gemm\"\naxes = { m = 64, n = 48, k = 40 }\ntypes = { dtype = \"f32\" }\n";
  return path;
}

/// The choices of a record's line, each as `edit` leaves it; one that it leaves empty goes.
inline void edit_choices(std::string& line, const std::function<void(std::string&)>& edit) {
  const std::string name = R"("choices":[)";
  const std::size_t found = line.find(name);
  if (found == std::string::npos) return;
  const std::size_t begin = found + name.size(), end = line.find(']', begin);
  std::string edited;
  for (std::size_t at = begin; at < end;) {
    const std::size_t close = line.find('}', at) + 1;
    std::string choice = line.substr(at, close - at);
    edit(choice);
    if (!choice.empty()) edited += (edited.empty() ? "" : ",") + choice;
    at = close + 1;
  }
  line.replace(begin, end - begin, edited);
}
inline bool needs_no_library(const std::string& choice) { return contains(choice, R"("role":"without_library")"); }

inline constexpr const char* usual = "tile_m=64 tile_n=64 vector=1 pdl=0";  // the default of Kiln's own kernels

/// Replaces a text of a choice, or the first of a line.
inline void set(std::string& choice, const char* name, const std::string& value) {
  const auto field = [&](const std::string& of) { return std::string("\"") + name + R"(":")" + of + '"'; };
  const std::string from = field(value_of(choice, name));
  choice.replace(choice.find(from), from.size(), field(value));
}

/// An overlay with one record, tuned and then rewritten: the library's fourth algorithm for all sizes, and without a library the default of
/// Kiln's own kernels, with its machine code. Made once in a process.
inline const std::filesystem::path& library_record() {
  static const TemporaryFolder folder;
  static std::filesystem::path made;
  if (!made.empty()) return made;
  {
    const Machine machine;
    kiln::Options chosen = gemm_options(folder / "overlay.kiln");
    chosen.search.trials = 2;  // the baseline and the library's first
    const kiln::Engine engine(chosen);
    const GemmCall call(engine);
    REQUIRE(call.launch(machine.stream()) == kiln::Origin::overlay);
    REQUIRE(call.implementation() == "cublaslt");
  }
  edit_records(folder, [](std::string& line) {
    std::string library, own;
    edit_choices(line, [&](std::string& choice) {
      std::string& kept = needs_no_library(choice) ? own : library;
      if (&kept == &own || contains(choice, R"("implementation":"cublaslt")")) kept = choice;
      choice.clear();
    });
    REQUIRE_FALSE(library.empty());
    REQUIRE_FALSE(own.empty());
    set(library, "config", fastest);
    for (std::string* choice : {&library, &own}) set(*choice, "sizes", "m=33..64");
    const std::string name = R"("choices":[)";
    line.insert(line.find(name) + name.size(), library + "," + own);
  });
  expect(0, "kiln prewarm " + gemm_workload(folder) + globals(folder));
  made = folder / "overlay.kiln";
  return made;
}

inline void tune_in(const TemporaryFolder& folder) {
  std::filesystem::copy_file(library_record(), folder / "overlay.kiln");
}

}  // namespace e2e
