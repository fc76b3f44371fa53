#include "store/transfer.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <istream>
#include <memory>
#include <ostream>
#include <vector>

#include "manifest/op.hpp"
#include "manifest/text.hpp"
#include "manifest/text_file.hpp"
#include "store/custody.hpp"
#include "store/json.hpp"
#include "store/limits.hpp"
#include "store/merge_order.hpp"
#include "store/opening.hpp"
#include "store/output_file.hpp"
#include "store/replaced_file.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

/// Returns "90" for "sm_90a" and for a device class such as "sm_90/mp132/...".
std::string_view capability(std::string_view text) {
  const auto digits = text.find_first_of("0123456789");
  return digits == std::string_view::npos ? text
                                          : text.substr(digits, text.find_first_not_of("0123456789", digits) - digits);
}

bool is_selected(const Record& record, const Selection& selection) {
  return (selection.op.empty() || record.op == selection.op) &&
         (selection.device_class.empty() || manifest::is_of_class(record.device_class, selection.device_class)) &&
         (!selection.record_keys || selection.record_keys->contains(record.key));
}

/// Kiln's own kernels, whose op is empty, are needed by every op. A device class excludes cubins of other
/// architectures.
bool is_selected(const PackedCubin& cubin, const Selection& selection) {
  return selection.cubins && (selection.op.empty() || cubin.op.empty() || cubin.op == selection.op) &&
         (selection.device_class.empty() || capability(cubin.arch) == capability(selection.device_class)) &&
         (!selection.cubin_keys || selection.cubin_keys->contains(cubin.key));
}

/// Copies the rows that the target lacks, or that are preferred to its own.
class Import {
 public:
  Import(Writer& to, TransferReport& report) : to_(to), report_(report) {}

  void add(const Record& record) {
    const auto existing = to_.find_record(record.key);
    if (existing && !is_better(record, *existing)) {
      ++report_.kept;
      return;
    }
    to_.put(record);
    ++(existing ? report_.replaced : report_.added);
  }
  void add(const PackedCubin& cubin) {
    const auto existing = to_.find_cubin(cubin.key);
    if (existing && !is_better(cubin, *existing)) return;
    to_.put(cubin);
    ++report_.cubins;
  }

 private:
  Writer& to_;
  TransferReport& report_;
};

/// A snapshot of each file, so that records and cubins that are copied belong together. Throws Error(bad_file) for a
/// file that cannot give all its rows: a copy would be sealed as if it held all.
class Snapshots {
 public:
  explicit Snapshots(std::span<File* const> files) {
    for (File* file : files) {
      kept_.push_back(file->snapshot());
      files_.push_back(kept_.back() ? kept_.back().get() : file);
      files_.back()->refuse_if_damaged("copied");
    }
  }
  [[nodiscard]] std::span<File* const> files() const noexcept { return files_; }

 private:
  std::vector<std::unique_ptr<File>> kept_;
  std::vector<File*> files_;
};

bool are_same(const File& a, const File& b) {
  std::error_code failure;
  return &a == &b || (!a.path().empty() && fs::equivalent(a.path(), b.path(), failure));
}

/// Returns the files whose machine code may be copied. Counts the cubins of the others in report.untrusted_cubins.
std::vector<File*> suppliers_of_code(std::span<File* const> files, const CodeTrust& trust, TransferReport& report) {
  std::vector<File*> suppliers;
  for (File* file : files) {
    if (judge_code(*file, trust).trusted)
      suppliers.push_back(file);
    else
      report.untrusted_cubins += file->stats().cubins;
  }
  return suppliers;
}

void write_sealed(const OutputFile& output, std::span<File* const> from, const Selection& selection,
                  const CodeTrust& trust, TransferReport& report, std::set<std::string>& keys) try {
  Connection connection = create_in(output, S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH);
  Transaction transaction(connection, Transaction::Kind::write);
  const auto put = [&](Record record) {
    if (!is_selected(record, selection)) return;
    if (!selection.candidates) record.candidates.clear();
    put_record(connection, record);
    ++report.added;
    if (selection.must_lose_nothing) keys.insert(std::move(record.key));
  };
  report.conflicts = merge<Record>(from, put);
  if (selection.cubins) {
    const auto put_code = [&](const PackedCubin& cubin) {
      if (is_selected(cubin, selection) && put_cubin(connection, cubin, digest_of(cubin), false)) ++report.cubins;
    };
    merge<PackedCubin>(suppliers_of_code(from, trust, report), put_code);
  }
  write_manifest(connection);
  transaction.commit();
} catch (const SqliteFailure& failure) {
  throw to_error(output.target(), "written", failure);
}

std::string name_of(const File& file) {
  return file.path().empty() ? "the text that was read" : fmt::format("'{}'", file.path().string());
}

void check_holds_records(const TransferReport& report, const Selection& selection, const std::string& from) {
  if (report.added > 0 || !selection.must_hold_records) return;
  std::string of;
  if (!selection.op.empty()) of += fmt::format(" of the op {}", manifest::quote(selection.op));
  if (!selection.device_class.empty())
    of += fmt::format(" for the device class {}", manifest::quote(selection.device_class));
  if (selection.record_keys) of += " that was asked for";
  throw Error(ErrorKind::bad_input, fmt::format("nothing is written: no record{} is in {}", of, from));
}

/// Parses and checks a line.
Record read_line(const std::string& line, const std::string& name, std::int64_t number) try {
  Record record = record_from_json(line);
  if (const auto flaw = flaw_of(record); !flaw.empty()) throw Error(ErrorKind::bad_input, flaw);
  for (const TriedCandidate& candidate : record.candidates)
    if (const auto flaw = flaw_of(candidate); !flaw.empty()) throw Error(ErrorKind::bad_input, "a candidate's " + flaw);
  return record;
} catch (const Error& error) {
  throw Error(ErrorKind::bad_input, fmt::format("{}:{}: {}", name, number, error.what()));
}

}  // namespace

bool is_text(const fs::path& path) { return path.extension() == ".jsonl"; }

std::unique_ptr<File> read_text(const fs::path& path) {
  manifest::check_regular_file(path);
  std::ifstream text(path);
  if (!text) throw Error(ErrorKind::io, fmt::format("'{}' cannot be read: {}", path.string(), std::strerror(errno)));
  auto file = File::in_memory();
  import_text(text, path.string(), *file);
  return file;
}

void export_text(File& from, std::ostream& to, const Selection& selection) {
  TransferReport report;
  File* const files[] = {&from};
  const Snapshots snapshots(files);
  Cursor<Record> records(*snapshots.files().front());
  while (records.front() != nullptr) {
    Record record = records.take();
    if (!is_selected(record, selection)) continue;
    if (!selection.candidates) record.candidates.clear();
    to << to_json(record) << '\n';
    ++report.added;
  }
  check_holds_records(report, selection, name_of(from));
  if (!to) throw Error(ErrorKind::io, "the exported text cannot be written; is the disk full?");
}

TransferReport import_text(std::istream& from, const std::string& name, File& to) {
  TransferReport report;
  to.write_all([&](Writer& writer) {
    Import import(writer, report);
    std::string line;
    for (std::int64_t number = 1; manifest::read_line(from, line, max_line_bytes, name, number); ++number)
      if (!line.empty() && line != "\r") import.add(read_line(line, name, number));
  });
  return report;
}

TransferReport merge_files(std::span<File* const> from, const fs::path& to, const Selection& selection, bool overwrite,
                           const CodeTrust& trust) {
  const fs::path target = literal_path(to);
  check_target(target, overwrite ? Existing::replace : Existing::keep);
  TransferReport report;
  std::set<std::string> keys;
  OutputFile output(target);
  {
    const Snapshots snapshots(from);
    write_sealed(output, snapshots.files(), selection, trust, report, keys);
  }
  check_holds_records(report, selection, from.size() == 1 ? name_of(*from.front()) : "the files given");
  const HeldTarget held(target, RecordFormat::sealed);
  if (overwrite && selection.must_lose_nothing) require_nothing_lost(target, RecordFormat::sealed, keys);
  if (overwrite) remove_journal_of(target);
  if (!output.move_into_place(overwrite ? held.existing() : Existing::keep)) check_target(target, Existing::keep);
  return report;
}

TransferReport export_file(File& from, const fs::path& to, const Selection& selection, bool overwrite,
                           const CodeTrust& trust) {
  File* const files[] = {&from};
  return merge_files(files, to, selection, overwrite, trust);
}

TransferReport merge_into(File& from, File& to, const CodeTrust& trust) {
  TransferReport report;
  if (are_same(from, to)) return report;
  File* const files[] = {&from};
  const Snapshots snapshots(files);
  const auto suppliers = suppliers_of_code(snapshots.files(), trust, report);
  to.write_all([&](Writer& writer) {
    Import import(writer, report);
    merge<Record>(snapshots.files(), [&](const Record& record) { import.add(record); });
    merge<PackedCubin>(suppliers, [&](const PackedCubin& cubin) { import.add(cubin); });
  });
  return report;
}

}  // namespace kiln::store
