// Very many buckets asked of very many records: the work grows with their sum.
#include "answer/expected_times.hpp"
#include "answer/neighbours.hpp"
#include "faults/engine/fixture.hpp"

namespace kiln::faults {
namespace {

/// A bucket of rms_norm; `cols` is exact.
Problem bucket_of(const manifest::Op& op, std::int64_t rows, std::int64_t cols) {
  return manifest::make_problem(
      op, std::vector<manifest::Setting>{{"rows", std::to_string(rows)}, {"cols", std::to_string(cols)}});
}

store::Record record_of(const manifest::Op& op, const Problem& bucket, const manifest::DeviceFacts& device) {
  store::Record record;
  record.key = manifest::Bucket({op, device, Regime::cold_l2}, bucket).key();
  record.op = op.name;
  record.revision = op.revision;
  record.device_class = device.device_class();
  record.regime = manifest::to_string(Regime::cold_l2);
  record.bucket = manifest::to_string(op, bucket);
  record.baseline_ns = 2000;
  const manifest::Implementation& implementation = op.implementations.front();
  const std::string config = manifest::to_string(implementation, implementation.default_config);
  record.choices = {{store::Role::fastest, manifest::to_string(op, manifest::whole_of(op, bucket)), implementation.name,
                     config, 1000, 990, 1010, 15, std::string(64, 'a'), "nvrtc 13.0"}};
  record.candidates = {{implementation.name,
                        config,
                        manifest::open_sizes(op, bucket),
                        store::Verdict::ok,
                        {},
                        1000,
                        990,
                        1010,
                        15,
                        32,
                        0,
                        true}};
  return record;
}

}  // namespace

TEST_CASE("fault 94: missing buckets are compared with few of the records, and have the same neighbours") {
  const manifest::Op op = manifest::load_op(fs::path(KILN_SOURCE_DIR) / "templates/rms_norm");
  const manifest::DeviceFacts device = h200();
  manifest::DeviceFacts smaller = device;
  smaller.values[1] /= 2;
  store::Layers layers({});
  std::vector<store::Record> records;
  constexpr std::int64_t sizes = 150, missing = 400;
  for (std::int64_t i = 0; i < sizes; ++i)
    for (std::int64_t rows = 1; rows <= 4096; rows *= 4) {
      records.push_back(record_of(op, bucket_of(op, rows, 64 + 104 * i), device));
      if (i % 5 == 0) records.push_back(record_of(op, bucket_of(op, rows, 64 + 104 * i), smaller));
    }
  layers.put_all(records, {});
  answer::ExpectedTimes times(device, Regime::cold_l2, layers);
  answer::NearIndex index(layers, {op, device});
  for (std::int64_t i = 0; i < missing; ++i) {
    const Problem bucket = bucket_of(op, std::int64_t{1} << i % 13, 80 + 8 * i);
    CHECK(times.of(op, bucket) > 0);
    if (i % 40 != 0) continue;
    std::vector<std::string> by_tree, by_sorting;
    for (const store::Record& each : index.nearest(bucket, 6)) by_tree.push_back(each.key);
    for (const store::Record& each : answer::neighbours(layers, {{op, device, Regime::cold_l2}, bucket}, 6))
      by_sorting.push_back(each.key);
    CHECK(by_tree == by_sorting);
  }
  const auto product = missing * static_cast<std::int64_t>(records.size());
  CAPTURE(times.compared());
  CHECK(times.compared() > missing);
  CHECK(times.compared() < product / 15);
  tally(94, missing, "missing buckets among many records");
}

}  // namespace kiln::faults
