// A run of writes is recorded call by call; the power goes at each call, several times, and what the disk may then hold is
// opened.
#include <functional>

#include "faults/store/power_loss.hpp"
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/layers.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr unsigned seed = 20261121;
constexpr int losses_a_call = 4;

struct StoredFiles {
  std::string overlay, exported;  // empty: there is no such file
  bool operator==(const StoredFiles&) const = default;
};

fs::path overlay_in(const fs::path& folder) { return folder / "deep" / "er" / "overlay.kiln"; }
fs::path export_in(const fs::path& folder) { return folder / "out.kiln"; }

StoredFiles contents_in(const fs::path& folder) {
  const auto content = [](const fs::path& path) { return fs::exists(path) ? content_of(path) : std::string(); };
  return {content(overlay_in(folder)), content(export_in(folder))};
}

using Step = std::function<void(File&, const fs::path&)>;

/// New rows, rows that grow and shrink, rows that go, and an export: each is one commit.
std::vector<Step> steps() {
  std::vector<Step> all;
  const auto put = [&](int key, double cost_ns, std::size_t cubin_bytes) {
    all.push_back([=](File& file, const fs::path&) {
      auto cubin = sample_cubin_at(key, cubin_bytes);
      file.put_all({{sample_record(sample_key(key), cost_ns)}}, {{cubin}}, Existing::replace);
    });
  };
  for (int key = 0; key < 4; ++key) put(key, key, 2000);
  put(1, 77, 20000);
  all.push_back([](File& file, const fs::path&) { file.remove_record(sample_key(2)); });
  all.push_back([](File& file, const fs::path&) { file.add_to_histogram({{"op", "rows=1", 3}}); });
  put(1, 78, 10);
  all.push_back([](File& file, const fs::path&) { file.acquire_lease("key", "holder", 100); });
  all.push_back([](File& file, const fs::path& folder) { export_file(file, export_in(folder), {}, false); });
  put(9, 9, 9000);
  all.push_back([](File& file, const fs::path&) {
    PruneRule rule;
    rule.cubin = [](const PackedCubin& cubin) { return cubin.label == "rms_norm 0"; };
    file.prune(rule);
  });
  all.push_back([](File& file, const fs::path&) { file.compact(); });
  all.push_back([](File& file, const fs::path& folder) { export_file(file, export_in(folder), {}, true); });
  return all;
}

/// What the files hold after the opening and after each step.
std::vector<StoredFiles> expected_contents() {
  const Folder folder;
  const auto file = File::open(overlay_in(folder.path()), Access::read_write);
  std::vector<StoredFiles> expected = {contents_in(folder.path())};
  for (const Step& step : steps()) {
    step(*file, folder.path());
    expected.push_back(contents_in(folder.path()));
  }
  return expected;
}

struct Recording {
  std::vector<faults::Request> requests;
  std::vector<std::size_t> returned;  // how many requests there were when each step returned, the opening first
};

Recording record() {
  const Folder folder;
  faults::Recorder recorder(folder.path());
  Recording recording;
  const faults::Watch watch(recorder);
  const auto file = File::open(overlay_in(folder.path()), Access::read_write);
  recording.returned.push_back(recorder.requests().size());
  for (const Step& step : steps()) {
    step(*file, folder.path());
    recording.returned.push_back(recorder.requests().size());
  }
  recording.requests = recorder.requests();
  return recording;
}

/// Opens what the disk was left with as a program would on its next start: nothing may need setting aside.
StoredFiles start_again(const fs::path& folder) {
  Layers layers({.overlay = overlay_in(folder)});
  CHECK(layers.warnings().empty());
  CHECK(layers.overlay().records({}, true).size() == static_cast<std::size_t>(layers.overlay().stats().records));
  CHECK(layers.overlay().counters().quarantined == 0);
  if (fs::exists(export_in(folder))) CHECK(refusal([&] { File::open(export_in(folder), Access::read_only); }).empty());
  return contents_in(folder);
}

TEST_CASE("fault 03: after a loss of power at any moment all that was committed is there and nothing is torn") {
  const auto expected = expected_contents();
  const auto recording = record();
  REQUIRE(recording.returned.size() == expected.size());
  std::mt19937 random(seed);
  faults::Disk disk;
  std::int64_t cases = 0;
  std::size_t committed = 0;  // steps that had returned, the opening included
  for (std::size_t at = 0; at <= recording.requests.size(); ++at) {
    while (committed < recording.returned.size() && recording.returned[committed] <= at) ++committed;
    for (int loss = 0; loss < losses_a_call; ++loss, ++cases) {
      const Folder folder;
      disk.lose_power(folder.path(), random);
      CAPTURE(at);
      CAPTURE(loss);
      CAPTURE(committed);
      const auto found = start_again(folder.path());
      const StoredFiles& sure = expected[committed == 0 ? 0 : committed - 1];
      const StoredFiles& in_doubt = expected[std::min(committed, expected.size() - 1)];
      const bool no_file_yet = committed == 0 && found == StoredFiles{};
      const bool right = no_file_yet || found == sure || found == in_doubt;
      CHECK(right);
    }
    if (at < recording.requests.size()) disk.take(recording.requests[at]);
  }
  CHECK(cases > 1000);
  faults::tally(3, cases, "losses of power");
}

}  // namespace
}  // namespace kiln::store
