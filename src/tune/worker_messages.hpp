// The messages between a tuner and its worker, as JSON values. Readers throw a std::exception on a malformed message.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tune/bench.hpp"

namespace kiln::tune {

/// The first message of a bucket.
struct Begin {
  manifest::Op op;
  Problem bucket;
  int device = 0;
  Regime regime = Regime::cold_l2;
  std::string arch;
  std::vector<store::CubinRow> cubins;
  std::optional<std::uint64_t> seed;  // BenchSettings::seed
};
nlohmann::json to_json(const BenchSettings& settings, const std::vector<store::CubinRow>& cubins);
Begin begin_from_json(const nlohmann::json& json);

nlohmann::json to_json(const store::CubinRow& row);
store::CubinRow cubin_from_json(const nlohmann::json& json);

nlohmann::json to_json(std::span<const Problem> sizes);
/// `bucket` gives their exact axes and selections.
std::vector<Problem> sizes_from_json(const Problem& bucket, const nlohmann::json& json);

nlohmann::json to_json(std::size_t candidate, const Trial& trial);
/// A Trial that owns its values.
struct OwnedTrial {
  manifest::Variant variant;
  jit::Cubin cubin;
  Problem at;
};
/// `bucket` gives the exact axes and selections of `at`. Throws Error(bad_input) for an implementation that the op
/// lacks.
OwnedTrial trial_from_json(const manifest::Op& op, const Problem& bucket, const nlohmann::json& json);

nlohmann::json to_json(std::span<const Point> points);
std::vector<Point> points_from_json(const nlohmann::json& json);

nlohmann::json to_json(const Admission& admission);
/// Admits no Verdict::not_timed or Verdict::compile_failed, which a worker never gives.
Admission admission_from_json(const nlohmann::json& json);
nlohmann::json to_json(const std::vector<Samples>& samples);
std::vector<Samples> samples_from_json(const nlohmann::json& json, std::size_t points);
/// Of the answer to a bucket's first message.
double prepared_ns_from_json(const nlohmann::json& json);

}  // namespace kiln::tune
