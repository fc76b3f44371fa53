#include "faults/store/operations.hpp"

#include <algorithm>
#include <sstream>

#include "faults/store/samples.hpp"
#include "store/custody.hpp"
#include "store/layers.hpp"
#include "store/made_up_format.hpp"
#include "store/opening.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr int stored = 3;  // records in the file before each operation

void prepare_sample(const fs::path& folder) { sample_file(folder / "a.kiln", stored); }

void prepare_two(const fs::path& folder) {
  prepare_sample(folder);
  const auto other = File::open(folder / "b.kiln", Access::read_write);
  const auto cubin = sample_cubin_at(7);
  other->put(with_samples(sample_record_at(1), 99), nullptr);
  other->put(sample_record_at(7), &cubin);
}

void prepare_damage(const fs::path& folder) {
  prepare_sample(folder);
  run_sql(folder / "a.kiln", "UPDATE choice SET config = 'threads=1' WHERE record = 2 AND position = 1");
}

/// With pages to give back.
void prepare_gaps(const fs::path& folder) {
  sample_file(folder / "a.kiln", 12, 9000);
  const auto file = File::open(folder / "a.kiln", Access::read_write);
  for (int at = stored; at < 12; ++at) file->remove_record(sample_key(at));
  PruneRule rule;
  rule.cubin = [](const PackedCubin& cubin) { return cubin.label > "rms_norm 2"; };
  file->prune(rule);
}

void prepare_lease(const fs::path& folder) {
  prepare_sample(folder);
  File::open(folder / "a.kiln", Access::read_write)->acquire_lease("key9", "holder", 1000);
}

Outcome wrong(Scene& scene, std::string what) {
  scene.said = std::move(what);
  return Outcome::wrong;
}

/// A miss must have a reason that was counted.
Outcome missed(Scene& scene, File& file) {
  const Counters counters = file.counters();
  if (counters.read_failures + counters.quarantined == 0) return wrong(scene, "a miss that nothing counts");
  scene.said = "counted";
  return Outcome::missed;
}

Outcome check_rows(Scene& scene, File& file) {
  for (int at = 0; at < stored; ++at) {
    const auto record = file.find_record(sample_key(at), true);
    if (!record) return missed(scene, file);
    if (!same(*record, sample_record_at(at))) return wrong(scene, "another record than was put");
    const auto cubin = file.find_cubin(digest_named(std::to_string(at)));
    if (!cubin) return missed(scene, file);
    if (!same(*cubin, sample_cubin_at(at))) return wrong(scene, "another cubin than was put");
  }
  return Outcome::done;
}

Outcome list_rows(Scene& scene) {
  const auto records = scene.file->records({}, true);
  if (records.empty()) return missed(scene, *scene.file);
  for (const Record& record : records)
    if (!same(record, sample_record(record.key, record.at_edge().cost_ns)))
      return wrong(scene, "another record in the list");
  const auto cubins = scene.file->cubins();
  if (cubins.empty()) return missed(scene, *scene.file);
  const bool all = records.size() == stored && cubins.size() == stored;
  return all ? Outcome::done : wrong(scene, "a list that is cut short");
}

/// What a user of layers sees: never an error, at worst memory and a warning.
Outcome open_layers(Scene& scene, const fs::path& overlay) {
  Layers layers({.overlay = overlay});
  if (layers.warnings().size() > 1) return wrong(scene, "more than one warning");
  const bool in_memory = layers.overlay().path().empty();
  if (in_memory != (layers.warnings().size() == 1)) return wrong(scene, "memory without a warning, or the reverse");
  if (in_memory) scene.said = layers.warnings().front();
  return in_memory ? Outcome::missed : Outcome::done;
}

Outcome quarantine(Scene& scene) {
  if (scene.file->find_record("key1")) return wrong(scene, "a damaged row was believed");
  const Counters counters = scene.file->counters();
  if (counters.quarantined + counters.read_failures == 0) return wrong(scene, "a miss that nothing counts");
  return counters.quarantined == 1 && counters.write_failures == 0 ? Outcome::done : Outcome::missed;
}

Outcome import_lines(Scene& scene) {
  const auto other = File::in_memory();
  other->put(sample_record_at(8), nullptr);
  other->put(sample_record_at(9), nullptr);
  std::stringstream text;
  export_text(*other, text, {});
  import_text(text, "text", *scene.file);
  return Outcome::done;
}

/// Copies a source that may fail under it: what could not be read must not pass for a file of fewer rows.
Outcome merge_other(Scene& scene) {
  const auto other = File::open(scene.folder / "b.kiln", Access::read_only);
  merge_into(*other, *scene.file);
  return Outcome::done;
}

Outcome merge_both(Scene& scene) {
  const auto other = File::open(scene.folder / "b.kiln", Access::read_only);
  const std::vector<File*> files = {scene.file.get(), other.get()};
  merge_files(files, scene.folder / "out.kiln", {}, false);
  return Outcome::done;
}

/// Opens the file as a Kiln does whose format is a version further.
Outcome migrate_sample(Scene& scene, Access access) try {
  Connection connection = open_existing(literal_path(scene.folder / "a.kiln"), access, nullptr, made_up_format());
  const Transaction transaction(connection, Transaction::Kind::read);
  Flaws flaws;
  const auto records = list_records(connection, {}, true, flaws);
  const auto is_migrated = [](const Record& each) { return each.regime == made_up_regime && each.choices.size() == 3; };
  return flaws.empty() && records.size() == stored && std::ranges::all_of(records, is_migrated)
             ? Outcome::done
             : wrong(scene, "rows of the version before are lost");
} catch (const SqliteFailure& failure) {
  scene.said = failure.what();
  return Outcome::missed;
}

Outcome prune_one(Scene& scene) {
  PruneRule rule;
  rule.record = [](const Record& record) { return record.key == "key1"; };
  return scene.file->prune(rule).records == 1 ? Outcome::done : wrong(scene, "another number of records went");
}

Outcome write_usage(Scene& scene) {
  if (!scene.file->find_record("key0") || !scene.file->find_record("key1")) return missed(scene, *scene.file);
  scene.file->flush_usage();
  return Outcome::done;
}

Outcome put(Scene& scene, int at) {
  const auto cubin = sample_cubin_at(at, 9000);
  scene.file->put(sample_record_at(at), &cubin);
  return Outcome::done;
}

Outcome put_many(Scene& scene) {
  std::vector<Record> records;
  std::vector<CubinRow> cubins;
  for (int at = 2; at < 12; ++at) {
    records.push_back(sample_record(sample_key(at), 7));
    cubins.push_back(sample_cubin_at(at, 5000));
  }
  scene.file->put_all(records, cubins, Existing::replace);
  return Outcome::done;
}

}  // namespace

std::span<const Operation> operations() {
  static const std::vector<Operation> all = {
      {"open for writing", prepare_sample, true,
       [](Scene& scene) {
         scene.file = File::open(scene.folder / "a.kiln", Access::read_write);
         return check_rows(scene, *scene.file);
       }},
      {"open for reading", prepare_sample, true,
       [](Scene& scene) {
         scene.file = File::open(scene.folder / "a.kiln", Access::read_only);
         return check_rows(scene, *scene.file);
       }},
      {"create", [](const fs::path&) {}, true,
       [](Scene& scene) {
         scene.file = File::open(scene.folder / "deep" / "er" / "a.kiln", Access::read_write);
         return Outcome::done;
       }},
      {"create an overlay", [](const fs::path&) {}, true,
       [](Scene& scene) { return open_layers(scene, scene.folder / "deep" / "er" / "overlay.kiln"); }},
      {"open an overlay", prepare_sample, true,
       [](Scene& scene) { return open_layers(scene, scene.folder / "a.kiln"); }},
      {"look up", prepare_sample, false, [](Scene& scene) { return check_rows(scene, *scene.file); }},
      {"list", prepare_sample, false, list_rows},
      {"put", prepare_sample, false, [](Scene& scene) { return put(scene, 9); }},
      {"replace", prepare_sample, false, [](Scene& scene) { return put(scene, 1); }},
      {"put many", prepare_sample, false, put_many},
      {"remove", prepare_sample, false,
       [](Scene& scene) {
         return scene.file->remove_record("key1") ? Outcome::done : wrong(scene, "a record that was not there");
       }},
      {"merge", prepare_two, false, merge_other},
      {"merge into a new file", prepare_two, false, merge_both},
      {"migrate", prepare_sample, true, [](Scene& scene) { return migrate_sample(scene, Access::read_write); }},
      {"migrate a copy", prepare_sample, true, [](Scene& scene) { return migrate_sample(scene, Access::read_only); }},
      {"prune", prepare_sample, false, prune_one},
      {"compact", prepare_gaps, false, [](Scene& scene) { return scene.file->compact(), Outcome::done; }},
      {"write what was used", prepare_sample, false, write_usage},
      {"import text", prepare_sample, false, import_lines},
      {"export", prepare_sample, false,
       [](Scene& scene) {
         export_file(*scene.file, scene.folder / "out.kiln", {}, false);
         return Outcome::done;
       }},
      {"export over a file", prepare_two, false,
       [](Scene& scene) {
         export_file(*scene.file, scene.folder / "b.kiln", {}, true);
         return Outcome::done;
       }},
      {"acquire a lease", prepare_sample, false,
       [](Scene& scene) {
         return scene.file->acquire_lease("key9", "holder", 1000)
                    ? Outcome::done
                    : wrong(scene, "a lease that nobody holds was refused");
       }},
      {"release a lease", prepare_lease, false,
       [](Scene& scene) { return scene.file->release_lease("key9", "holder"), Outcome::done; }},
      {"count launches", prepare_sample, false,
       [](Scene& scene) {
         return scene.file->add_to_histogram({{"op", "rows=1", 5}, {"op", "rows=2", 1}}), Outcome::done;
       }},
      {"set a damaged row aside", prepare_damage, false, quarantine},
  };
  return all;
}

Scene make_scene(const Operation& operation, const fs::path& folder) {
  Scene scene{folder, nullptr, {}};
  if (!operation.opens_itself) scene.file = File::open(folder / "a.kiln", Access::read_write);
  return scene;
}

Outcome run(const Operation& operation, Scene& scene) try { return operation.work(scene); } catch (const Error& error) {
  scene.said = error.what();
  return Outcome::refused;
}

}  // namespace kiln::store
