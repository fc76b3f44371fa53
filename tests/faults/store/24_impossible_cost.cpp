#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/opening.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::array<double* (*)(Record&), 4> costs = {[](Record& record) { return &record.baseline_ns; },
                                                       [](Record& record) { return &record.choices[0].cost_ns; },
                                                       [](Record& record) { return &record.choices[1].low_ns; },
                                                       [](Record& record) { return &record.choices[2].high_ns; }};

TEST_CASE("fault 24: a cost that is negative or infinite is a miss even under a right digest, and set aside once") {
  std::int64_t cases = 0;
  for (const double bad : {-1.0, -infinity, infinity, -std::numeric_limits<double>::denorm_min()})
    for (const auto cost : costs) {
      const Folder folder;
      const auto path = sample_file(folder / "a.kiln");
      auto record = sample_record("key1");
      *cost(record) = bad;
      {
        Connection connection = open_existing(path, Access::read_write);
        put_record(connection, record);  // digest and all, past the checks of File::put
      }
      CHECK(!File::open(path, Access::read_only)->find_record("key1"));
      const auto file = File::open(path, Access::read_write);
      CHECK(!file->find_record("key1"));
      CHECK(file->counters().quarantined == 1);
      CHECK(!file->find_record("key1"));
      CHECK(file->counters().quarantined == 1);
      CHECK(contains(rows_of(path, "SELECT source, key, reason FROM quarantine"), "record|key1|"));
      ++cases;
    }
  faults::tally(24, cases, "impossible costs of records");
}

TEST_CASE("fault 24: a candidate of an impossible cost is set aside alone") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln");
  auto record = sample_record("key1");
  record.candidates[1].cost_ns = infinity;
  {
    Connection connection = open_existing(path, Access::read_write);
    put_record(connection, record);
  }
  const auto file = File::open(path, Access::read_write);
  const auto found = file->find_record("key1", true);
  REQUIRE(found);
  REQUIRE(found->candidates.size() == 1);
  CHECK(same(found->candidates[0], record.candidates[0]));
  CHECK(file->counters().quarantined == 1);
  faults::tally(24, 1, "impossible costs of candidates");
}

// SQLite stores no NaN, so it can only get there beside it: the bits of a cost in the file are made one.
TEST_CASE("fault 24: a cost whose bits in the file are those of a NaN is a miss") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  constexpr double marked = 1234567.890625;
  File::open(path, Access::read_write)->put(sample_record("key", marked), nullptr);
  const auto big_endian = [](double value) {
    auto bits = std::bit_cast<std::uint64_t>(value);
    std::string bytes(sizeof bits, '\0');
    for (auto at = bytes.rbegin(); at != bytes.rend(); ++at, bits >>= 8U) *at = static_cast<char>(bits & 0xffU);
    return bytes;
  };
  auto bytes = bytes_of(path);
  const auto at = bytes.find(big_endian(marked));
  REQUIRE(at != std::string::npos);
  write_bytes(path, bytes.replace(at, sizeof marked, big_endian(std::nan(""))));
  const auto file = File::open(path, Access::read_write);
  CHECK(!file->find_record("key"));
  CHECK(file->counters().quarantined == 1);
  CHECK(file->stats().records == 0);
  faults::tally(24, 1, "costs that are not a number");
}

}  // namespace
}  // namespace kiln::store
