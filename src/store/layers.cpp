#include "store/layers.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "kiln/error.hpp"
#include "manifest/environment.hpp"
#include "store/custody.hpp"
#include "store/file_system.hpp"
#include "store/guards.hpp"
#include "store/merge_order.hpp"
#include "store/opening.hpp"
#include "store/sqlite.hpp"
#include "store/transfer.hpp"
#include "store/trust.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr const char* no_place =
    "there is no overlay: none of KILN_CACHE, XDG_CACHE_HOME and HOME names a place for one";

constexpr const char* no_choice =
    "there is no overlay: the program has rights that its user has not (setuid, setgid or file capabilities), so the environment does not name a "
    "place for one; name it in Options::overlay or --overlay";

Layer in_memory(const fs::path& path, std::string refused) {
  return {LayerKind::overlay, path, File::in_memory(), std::move(refused), true, "it is in this process's memory"};
}

Layer own(const fs::path& path, std::int64_t limit_bytes, std::vector<std::string>& warnings) {
  auto file = File::open(path, Access::read_write, limit_bytes, Creation::at_first_write);
  if (const auto locked = file->why_not_open(); !locked.empty())
    warnings.push_back(
        fmt::format("{}; it is asked for again later, and what is found until then is kept in memory", locked));
  const char* const trust = is_missing(path) ? "the first write makes it, for this user alone"
                                             : "it and its folder can be written by nobody else";
  return {LayerKind::overlay, path, std::move(file), {}, true, trust};
}

std::string set_aside_in_words(const Error& damage, const fs::path& aside) {
  return fmt::format("{}; it was set aside as '{}' and a new overlay begun", damage.what(), aside.string());
}

Layer open_overlay_at(const fs::path& path, std::int64_t limit_bytes, std::vector<std::string>& warnings) {
  if (const auto objection = overlay_objection(path); !objection.empty())
    throw Error(ErrorKind::no_permission, fmt::format("'{}' is not used as overlay: {}", path.string(), objection));
  try {
    return own(path, limit_bytes, warnings);
  } catch (const DamagedFile& damage) {
    const fs::path aside = set_aside_if_damaged(path);
    Layer layer = own(path, limit_bytes, warnings);
    if (!aside.empty()) warnings.push_back(layer.set_aside = set_aside_in_words(damage, aside));
    return layer;
  }
}

/// An overlay on a remote file system is neither read nor written, since another machine may use it.
Layer open_stand_in(const fs::path& path, std::string_view kind, std::int64_t limit_bytes,
                    std::vector<std::string>& warnings) {
  const auto why = fmt::format("'{}' is on {}, where files cannot be locked reliably", path.string(), kind);
  try {
    const fs::path local = local_stand_in(path);
    Layer layer = open_overlay_at(local, limit_bytes, warnings);
    warnings.push_back(fmt::format("{}; '{}' serves as overlay instead; give the former as a base to use what it holds",
                                   why, local.string()));
    return layer;
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}, and {}", why, error.what()));
  }
}

Layer open_overlay(const LayerSettings& settings, std::vector<std::string>& warnings) {
  constexpr const char* in_memory_only = "records of this process are kept in memory only";
  if (!settings.overlay) {
    const char* why = manifest::has_raised_rights() ? no_choice : no_place;
    warnings.push_back(fmt::format("{}; {}", why, in_memory_only));
    return in_memory({}, why);
  }
  const fs::path& path = *settings.overlay;
  if (path.empty()) return in_memory(path, {});
  try {
    const fs::path literal = literal_path(path);
    if (const auto kind = remote_file_system(literal); !kind.empty())
      return open_stand_in(literal, kind, settings.overlay_limit_bytes, warnings);
    return open_overlay_at(literal, settings.overlay_limit_bytes, warnings);
  } catch (const Error& error) {
    warnings.push_back(fmt::format("{}; {}", error.what(), in_memory_only));
    return in_memory(path, error.what());
  }
}

Layer open_base(const fs::path& path, const CodeTrust& trust, std::vector<std::string>& warnings) {
  Layer layer{LayerKind::base, path, nullptr, {}, false, {}};
  try {
    if (is_text(path)) {
      layer.file = read_text(path);
      layer.trust = "text holds no machine code";
      return layer;
    }
    layer.file = File::open(path, Access::read_only);
    const auto [trusted, why] = judge_code(*layer.file, trust);
    layer.trusted_for_code = trusted;
    layer.trust = why;
    if (!trusted && !layer.file->compilers().empty())
      warnings.push_back(
          fmt::format("the machine code of the base '{}' is not used, and what its records need is compiled: {}",
                      path.string(), why));
  } catch (const Error& error) {
    layer.refused = error.what();
    layer.trust = "it is refused";
    warnings.push_back(fmt::format("a base file is left out: {}", error.what()));
  }
  return layer;
}

/// Opens a refused overlay as a base if it is this user's own and readable, as in a deployed read-only image.
std::optional<Layer> as_base(const Layer& overlay, const CodeTrust& trust) {
  try {
    const fs::path path = literal_path(overlay.path);
    if (is_missing(path) || !overlay_objection(path).empty()) return std::nullopt;
    std::vector<std::string> unused;  // the caller has warned already
    Layer base = open_base(path, trust, unused);
    if (base.refused.empty()) return base;
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): its path names no file
  }
  return std::nullopt;
}

}  // namespace

std::string name_of(const Layer& layer) {
  return fmt::format("{} {}", layer.kind == LayerKind::overlay ? "overlay" : "base",
                     layer.path.empty() ? "(in memory)" : layer.path.string());
}

Layers::Layers(const LayerSettings& settings)
    : memory_(std::make_unique<Memory>()), unreleased_(std::make_unique<Unreleased>()) {
  layers_.push_back(open_overlay(settings, warnings_));
  const bool refused = !layers_.front().refused.empty() && !layers_.front().path.empty();
  if (settings.bases.empty() && !refused) return;
  const std::size_t said = warnings_.size();
  const CodeTrust trust{settings.trust, KeyRing::read(settings.key_folders, warnings_)};
  if (auto base = refused ? as_base(layers_.front(), trust) : std::nullopt) {
    warnings_[said - 1] += "; what it holds is read as a base's";
    layers_.push_back(*std::move(base));
    readable_overlay_ = 1;
  } else if (refused && !is_missing(layers_.front().path)) {
    warnings_[said - 1] += "; what it holds is not read";
  }
  for (const fs::path& base : settings.bases) {
    const std::size_t before = warnings_.size();
    layers_.push_back(open_base(base, trust, warnings_));
    if (settings.require_bases && warnings_.size() > before)
      throw Error(ErrorKind::bad_file, fmt::format("every base is required to serve whole, and {}", warnings_.back()));
  }
}

std::optional<Found<Record>> Layers::find_record(std::string_view key,
                                                 const std::function<bool(const Found<Record>&)>& accepts,
                                                 Counters* met) {
  const auto ask = [&](File* file, std::size_t layer) -> std::optional<Found<Record>> {
    auto record = file != nullptr ? file->find_record(key, false, met) : std::nullopt;
    if (!record) return std::nullopt;
    Found<Record> found{std::move(*record), layer};
    if (accepts && !accepts(found)) return std::nullopt;
    return found;
  };
  if (auto found = ask(memory(), 0)) return found;
  for (std::size_t at = 0; at < layers_.size(); ++at)
    if (auto found = ask(layers_[at].file.get(), at)) return found;
  return std::nullopt;
}

std::optional<Found<CubinRow>> Layers::find_cubin(const manifest::Digest& key, Counters* met) {
  if (File* file = memory())
    if (auto cubin = file->find_cubin(key, met)) return Found<CubinRow>{std::move(*cubin), 0};
  for (std::size_t at = 0; at < layers_.size(); ++at)
    if (layers_[at].file && layers_[at].trusted_for_code)
      if (auto cubin = layers_[at].file->find_cubin(key, met)) return Found<CubinRow>{std::move(*cubin), at};
  return std::nullopt;
}

bool Layers::has_cubin(const manifest::Digest& key) {
  if (File* file = memory(); file != nullptr && file->has_cubin(key)) return true;
  return std::ranges::any_of(
      layers_, [&](const Layer& each) { return each.file && each.trusted_for_code && each.file->has_cubin(key); });
}

std::vector<std::string> Layers::compilers() {
  std::set<std::string> distinct;
  const auto add = [&](File& file) {
    for (std::string& compiler : file.compilers()) distinct.insert(std::move(compiler));
  };
  if (File* file = memory()) add(*file);
  for (const Layer& layer : layers_)
    if (layer.file && layer.trusted_for_code) add(*layer.file);
  return {distinct.begin(), distinct.end()};
}

std::vector<Found<Record>> Layers::records(std::string_view op) {
  std::vector<Found<Record>> all;
  const auto add = [&](File* file, std::size_t layer) {
    if (file == nullptr) return;
    const SharedRecords records = file->kept_records(op);  // which a loop over it would not keep alive
    for (const Record& record : *records) all.push_back({record, layer});
  };
  add(memory(), 0);
  for (std::size_t at = 0; at < layers_.size(); ++at) add(layers_[at].file.get(), at);
  return all;
}

std::vector<TriedCandidate> Layers::candidates_of(const Found<Record>& found) {
  const auto ask = [&](File* file) {
    auto record = file != nullptr ? file->find_record(found.value.key, true) : std::nullopt;
    return record ? std::move(record->candidates) : std::vector<TriedCandidate>();
  };
  if (found.layer == 0) {
    if (auto candidates = ask(memory()); !candidates.empty()) return candidates;
  }
  return ask(layers_[found.layer].file.get());
}

File& Layers::overlay() { return *layers_.front().file; }

File& Layers::Memory::ready() {
  if (!file) {
    file = File::in_memory();
    opened = file.get();
  }
  return *file;
}

void Layers::Memory::put(std::span<const Record> records, std::span<const CubinRow> cubins, Existing existing,
                         Replaces replaces) {
  ++puts;
  std::vector<Record> taken;
  for (const Record& record : records) {
    const auto present = replaces == Replaces::worse ? ready().find_record(record.key, true) : std::nullopt;
    if (present && !is_better(record, *present)) continue;
    taken.push_back(record);
  }
  ready().put_all(taken, cubins, existing);
  for (const Record& record : taken) {
    Kept& row = kept.try_emplace(record.key, Kept{replaces, puts}).first->second;
    row.number = puts;
    if (replaces == Replaces::any) row.replaces = replaces;
  }
}

Layers::Memory::Taken Layers::Memory::take() {
  Taken taken{{}, {}, file->cubins(), puts};
  for (Record& record : file->records({}, true)) {
    const auto row = kept.find(record.key);
    const bool is_addition = row != kept.end() && row->second.replaces == Replaces::worse;
    (is_addition ? taken.additions : taken.records).push_back(std::move(record));
  }
  return taken;
}

void Layers::Memory::remove(const std::function<bool(const Record&)>& is_done, std::span<const CubinRow> cubins) {
  std::set<manifest::Digest> code;
  for (const CubinRow& cubin : cubins) code.insert(cubin.key);
  PruneRule rule;
  rule.record = [&](const Record& record) {
    const bool is_removed = is_done(record);
    if (is_removed) kept.erase(record.key);
    return is_removed;
  };
  rule.cubin = [&](const PackedCubin& cubin) { return code.contains(cubin.key); };
  file->prune(rule);
}

void Layers::keep_in_memory(const Error& error, const std::function<void(Memory&)>& work) {
  {
    const std::lock_guard guard(memory_->mutex);
    memory_->ready();
    if (memory_->why.empty())
      memory_->why = fmt::format("{}; what is found from now on is kept in this process's memory only", error.what());
    work(*memory_);
  }
  if (told_) told_();
}

/// Moves the rows that could not be stored earlier, and those of put_later(), into the overlay, in one transaction.
/// Precondition: memory_->writing is held.
void Layers::move_from_memory(File& to, std::chrono::milliseconds patience) {
  if (memory() == nullptr) return;
  Memory::Taken taken;
  {
    const std::lock_guard guard(memory_->mutex);
    if (memory_->lost_rows.empty() && !memory_->has_queued) return;
    taken = memory_->take();
  }
  to.add_all(taken.records, taken.additions, taken.cubins, patience);
  const std::lock_guard guard(memory_->mutex);
  const auto is_moved = [&](const Record& record) {
    const auto row = memory_->kept.find(record.key);
    return row == memory_->kept.end() || row->second.number <= taken.last;
  };
  memory_->remove(is_moved, taken.cubins);
  memory_->in_use = {};
  if (memory_->queued_at <= taken.last) memory_->has_queued = false;
  if (memory_->lost_at > taken.last) return;
  memory_->lost_rows.clear();
  memory_->why.clear();
}

/// An overlay that cannot be read here and there would be tuned into again and again, and keep nothing.
void Layers::begin_anew_if_damaged(const Error& error) {
  if (overlay().path().empty()) return;
  const fs::path aside = set_aside_if_damaged(overlay().path());
  if (aside.empty()) return;  // another process was faster
  {
    const std::lock_guard guard(memory_->mutex);
    memory_->set_aside.push_back(set_aside_in_words(error, aside));
  }
  if (told_) told_();
}

/// Runs `work` on the overlay, and again on a new one if the first was damaged.
template <class Work>
auto Layers::write(Work&& work) {
  try {
    return work(overlay());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_file) throw;
    begin_anew_if_damaged(error);
  }
  return work(overlay());
}

void Layers::put_all(std::span<const Record> records, std::span<const CubinRow> cubins, Existing existing) {
  try {
    write([&](File& file) {
      const std::lock_guard writing(memory_->writing);
      move_from_memory(file, usual_lock_wait);
      file.put_all(records, cubins, existing);
      const std::lock_guard guard(memory_->mutex);
      const auto is_replaced = [&](const Record& kept) {
        return std::ranges::any_of(records, [&](const Record& record) { return record.key == kept.key; });
      };
      if (!memory_->kept.empty()) memory_->remove(is_replaced, {});  // what put_later() put meanwhile
    });
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bad_input) throw;
    keep_in_memory(error, [&](Memory& memory) {
      memory.put(records, cubins, existing, Replaces::any);
      memory.lost_at = memory.puts;
      memory.lost_rows = error.what();
    });
  }
}

bool Layers::put_later(std::span<const Record> records, std::span<const CubinRow> cubins, Replaces replaces) {
  if (overlay().path().empty()) {
    put_all(records, cubins);
    return false;
  }
  const std::lock_guard guard(memory_->mutex);
  memory_->put(records, cubins, Existing::keep, replaces);
  memory_->queued_at = memory_->puts;
  memory_->has_queued = true;
  return true;
}

void Layers::write_queued() { write_queued(usual_lock_wait, false); }

bool Layers::write_queued(std::chrono::milliseconds patience) { return write_queued(patience, true); }

bool Layers::has_queued() const {
  const std::lock_guard guard(memory_->mutex);
  return memory_->has_queued && memory_->lost_rows.empty();
}

bool Layers::write_queued(std::chrono::milliseconds patience, bool may_remain) {
  const auto begun = std::chrono::steady_clock::now();
  {
    const std::lock_guard guard(memory_->mutex);
    if (!memory_->has_queued) return true;
  }
  const auto is_overdue = [&] {
    const std::lock_guard guard(memory_->mutex);
    if (memory_->in_use == std::chrono::steady_clock::time_point()) memory_->in_use = begun;
    return std::chrono::steady_clock::now() - memory_->in_use >= usual_lock_wait;
  };
  try {
    write([&](File& file) {
      const std::unique_lock writing = lock_within(memory_->writing, patience);
      if (!writing) throw BusyFile(fmt::format("'{}' is being written by another thread", file.path().string()));
      move_from_memory(file, patience);
    });
  } catch (const BusyFile& error) {
    if (may_remain && !is_overdue()) return false;
    keep_in_memory(error, [&](Memory& memory) { memory.lost_rows = error.what(); });
  } catch (const Error& error) {
    keep_in_memory(error, [&](Memory& memory) { memory.lost_rows = error.what(); });
  }
  return true;
}

std::string Layers::not_kept() {
  write_queued();
  const Layer& overlay = layers_.front();
  const fs::path& path = overlay.file->path();
  if (!overlay.refused.empty()) return overlay.refused;
  if (path.empty()) return "the overlay is in memory, as its empty path asks";
  try {
    if (!is_missing(path)) File::open(path, Access::read_only);
  } catch (const Error& error) {
    return error.what();
  }
  const std::lock_guard guard(memory_->mutex);
  return memory_->lost_rows;
}

bool Layers::keeps(std::string_view key) {
  write_queued();
  if (File* file = memory(); file != nullptr && file->find_record(key, true))
    return false;  // the file may hold an older one
  return !overlay().path().empty() && overlay().find_record(key, true).has_value();
}

bool Layers::acquire_lease(std::string_view key, std::string_view holder, std::int64_t term_seconds) {
  release_what_is_left();
  try {
    return write([&](File& file) { return file.acquire_lease(key, holder, term_seconds); });
  } catch (const Error& error) {
    keep_in_memory(error, [](Memory&) {});
    return true;
  }
}

void Layers::release_lease(std::string_view key, std::string_view holder) {
  {
    const std::lock_guard guard(unreleased_->mutex);
    unreleased_->leases.push_back({std::string(key), std::string(holder)});
  }
  release_what_is_left();
}

void Layers::renew_lease(std::string_view key, std::string_view holder, std::int64_t term_seconds) noexcept {
  try {
    overlay().acquire_lease(key, holder, term_seconds);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): see the header
  }
}

void Layers::release_what_is_left() noexcept {
  try {
    const std::lock_guard guard(unreleased_->mutex);
    while (!unreleased_->leases.empty()) {
      const Unreleased::Lease& lease = unreleased_->leases.back();
      overlay().release_lease(lease.key, lease.holder);
      unreleased_->leases.pop_back();
    }
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it is retried, and the lease ends with its term
  }
}

Layers::~Layers() {
  if (!unreleased_) return;  // moved from
  told_ = nullptr;           // who listens may be gone
  release_what_is_left();
  try {
    write([&](File& file) { move_from_memory(file, usual_lock_wait); });
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): not_kept() told so
  }
}

std::vector<std::string> Layers::warnings() const {
  std::vector<std::string> all = warnings_;
  for (const Layer& layer : layers_) {
    const std::string overwritten = layer.file ? layer.file->why_overwritten() : std::string();
    if (!overwritten.empty())
      all.push_back(overwritten);
    else if (layer.file && layer.file->counters().read_failures > 0)
      all.push_back(fmt::format("'{}' could not be read at times; each such look-up was a miss", layer.path.string()));
  }
  const std::lock_guard guard(memory_->mutex);
  all.insert(all.end(), memory_->set_aside.begin(), memory_->set_aside.end());
  if (!memory_->why.empty()) all.push_back(memory_->why);
  return all;
}

std::optional<fs::path> default_overlay() {
  const auto variable = [](const char* name) { return fs::path(manifest::environment(name)); };
  if (manifest::has_variable("KILN_CACHE")) return variable("KILN_CACHE");
  // The XDG specification says to ignore relative paths.
  if (const auto cache = variable("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "kiln" / "overlay.kiln";
  if (const auto home = variable("HOME"); home.is_absolute()) return home / ".cache" / "kiln" / "overlay.kiln";
  return std::nullopt;
}

}  // namespace kiln::store
