#include "store/transfer.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <istream>
#include <limits>
#include <map>
#include <ostream>
#include <set>
#include <tuple>

#include "store/custody.hpp"
#include "store/json.hpp"
#include "store/opening.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

std::vector<Record> select_records(File& from, const Selection& selection) {
  auto records = from.records(selection.op, selection.candidates);
  if (!selection.device_class.empty())
    std::erase_if(records, [&](const Record& record) { return record.device_class != selection.device_class; });
  std::ranges::sort(records, {}, &Record::key);
  return records;
}

/// The digits of "sm_90a" or of a device class such as "sm_90/mp132/...".
std::string_view capability(std::string_view text) {
  const auto digits = text.find_first_of("0123456789");
  return digits == std::string_view::npos ? text
                                          : text.substr(digits, text.find_first_not_of("0123456789", digits) - digits);
}

/// A cubin does not say which op it serves, so a selection by op keeps them all; a device class leaves out other
/// architectures.
std::vector<CubinRow> select_cubins(File& from, const Selection& selection) {
  if (!selection.cubins) return {};
  auto cubins = from.cubins();
  if (!selection.device_class.empty())
    std::erase_if(cubins,
                  [&](const CubinRow& cubin) { return capability(cubin.arch) != capability(selection.device_class); });
  return cubins;
}

/// A file in memory was filled by this process; any other must satisfy the policy `owner` for its machine code to be
/// copied.
bool may_supply_code(const File& file) { return file.path().empty() || owner_trust(file.path()).trusted; }

spec::Digest digest_of_candidates(const Record& record) {
  spec::Hasher hasher;
  std::int64_t position = 0;
  for (const Candidate& candidate : record.candidates) {
    const auto digest = digest_of(record.key, position++, candidate);
    hasher.field(std::span<const std::byte>(digest));
  }
  return hasher.finish();
}

/// A total order over the records of one key, the best first: what merging keeps depends on neither side nor sequence.
auto rank(const Record& record) {
  const double relative =
      record.cost_ns > 0 ? (record.high_ns - record.low_ns) / record.cost_ns : std::numeric_limits<double>::infinity();
  return std::tuple(-record.samples, relative, digest_of(record), -static_cast<std::int64_t>(record.candidates.size()),
                    digest_of_candidates(record));
}

spec::Digest digest_of_content(const CubinRow& cubin) { return digest_of(pack(cubin)); }

/// Sorts what comes in into what `to` must take over, by key and with the best of equal keys.
class Merge {
 public:
  explicit Merge(File& to) : to_(to) {}

  void add(Record record) {
    const auto [place, first] = incoming_.try_emplace(record.key);
    if (first || rank(record) < rank(place->second)) place->second = std::move(record);
  }

  void add(CubinRow cubin) {
    const auto existing = to_.find_cubin(cubin.key);
    if (!existing || digest_of_content(cubin) < digest_of_content(*existing)) cubins_.push_back(std::move(cubin));
  }

  TransferReport commit() {
    TransferReport report;
    std::vector<Record> records;
    for (auto& [key, record] : incoming_) {
      const auto existing = to_.find_record(key, true);
      if (existing && !(rank(record) < rank(*existing))) {
        ++report.kept;
        continue;
      }
      ++(existing ? report.replaced : report.added);
      records.push_back(std::move(record));
    }
    report.cubins = static_cast<std::int64_t>(cubins_.size());
    if (!records.empty() || !cubins_.empty()) to_.put_all(records, cubins_, Existing::replace);
    return report;
  }

 private:
  File& to_;
  std::map<std::string, Record> incoming_;
  std::vector<CubinRow> cubins_;
};

fs::path temporary_beside(const fs::path& path) {
  fs::path temporary = path;
  temporary += fmt::format(".{}.tmp", getpid());
  return temporary;
}

/// Removes the file, and what SQLite may have left beside it, unless it was published.
struct Unpublished {
  fs::path path;
  ~Unpublished() {
    if (path.empty()) return;
    fs::path journal = path;
    journal += "-journal";
    unlink(path.c_str());
    unlink(journal.c_str());
  }
};

void write_sealed(const fs::path& path, std::span<const Record> records, std::span<const CubinRow> cubins) try {
  create_new(path, S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH);
  Connection connection = open_existing(path, Access::read_write);
  Transaction transaction(connection, Transaction::Kind::write);
  for (const Record& record : records) put_record(connection, record);
  for (const CubinRow& cubin : cubins) {
    const PackedCubin packed = pack(cubin);
    put_cubin(connection, packed, digest_of(packed), false);
  }
  write_manifest(connection);
  transaction.commit();
} catch (const SqliteFailure& failure) {
  throw to_error(path, "written", failure);
}

}  // namespace

void export_text(File& from, std::ostream& to, const Selection& selection) {
  for (const Record& record : select_records(from, selection)) to << to_json(record) << '\n';
  if (!to) throw Error(ErrorKind::io, "the exported text cannot be written; is the disk full?");
}

TransferReport import_text(std::istream& from, const std::string& name, File& to) {
  Merge merge(to);
  std::string line;
  for (std::int64_t number = 1; std::getline(from, line); ++number) {
    if (line.empty() || line == "\r") continue;
    try {
      Record record = record_from_json(line);
      if (const auto flaw = flaw_of(record); !flaw.empty()) throw Error(ErrorKind::bad_input, flaw);
      for (const Candidate& candidate : record.candidates)
        if (const auto flaw = flaw_of(candidate); !flaw.empty())
          throw Error(ErrorKind::bad_input, "a candidate's " + flaw);
      merge.add(std::move(record));
    } catch (const Error& error) {
      throw Error(ErrorKind::bad_input, fmt::format("{}:{}: {}", name, number, error.what()));
    }
  }
  if (from.bad()) throw Error(ErrorKind::io, fmt::format("'{}' cannot be read to its end", name));
  return merge.commit();
}

TransferReport export_file(File& from, const fs::path& to, const Selection& selection, bool overwrite) {
  const fs::path target = literal_path(to);
  struct stat status {};
  const bool replaces = lstat(target.c_str(), &status) == 0;
  if (replaces && !overwrite)
    throw Error(ErrorKind::bad_input,
                fmt::format("'{}' exists; allow it to be overwritten, or name another file", target.string()));
  if (replaces && !S_ISREG(status.st_mode))
    throw Error(ErrorKind::bad_input, fmt::format("'{}' is not a regular file and is not replaced", target.string()));

  const auto records = select_records(from, selection);
  auto cubins = select_cubins(from, selection);
  TransferReport report;
  report.added = static_cast<std::int64_t>(records.size());
  if (!cubins.empty() && !may_supply_code(from))
    report.untrusted_cubins = static_cast<std::int64_t>(std::exchange(cubins, {}).size());
  report.cubins = static_cast<std::int64_t>(cubins.size());

  Unpublished temporary{temporary_beside(target)};
  write_sealed(temporary.path, records, cubins);
  if (rename(temporary.path.c_str(), target.c_str()) != 0)
    throw Error(ErrorKind::io, fmt::format("'{}' cannot be put in place: {}", target.string(), std::strerror(errno)));
  temporary.path.clear();
  FolderLock(target.parent_path()).sync();
  return report;
}

TransferReport merge_into(File& from, File& to) {
  Merge merge(to);
  for (Record& record : from.records({}, true)) merge.add(std::move(record));
  auto cubins = from.cubins();
  std::int64_t left_behind = 0;
  if (!cubins.empty() && !may_supply_code(from))
    left_behind = static_cast<std::int64_t>(std::exchange(cubins, {}).size());
  for (CubinRow& cubin : cubins) merge.add(std::move(cubin));
  TransferReport report = merge.commit();
  report.untrusted_cubins = left_behind;
  return report;
}

}  // namespace kiln::store
