// kiln cache verify: checks every row, the seal and the signatures of a file.
#include <fmt/format.h>

#include <algorithm>

#include "cli/cache.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "manifest/text.hpp"
#include "store/signing.hpp"
#include "store/transfer.hpp"
#include "store/verify.hpp"

namespace kiln::cli {
namespace {

struct CacheVerifySettings {
  std::string file;
  std::size_t limit = 20;
  bool require_signature = false;
};

void declare(CLI::App& command, CacheVerifySettings& settings) {
  command.add_option("file", settings.file, "The file, .kiln or .jsonl")->required()->type_name("FILE");
  command.add_option("--limit", settings.limit, "Name at most this many rows that do not hold")
      ->transform(whole_number_from(0, most_counted))
      ->type_name("N")
      ->capture_default_str();
  command.add_flag("--require-signature", settings.require_signature,
                   "Exit with 1 unless a trusted key has signed the file and its signature holds");
}

std::string_view standing(const store::SignatureState& state) {
  if (!state.valid) return "does not hold";
  if (state.revoked) return "holds, by a key that is revoked";
  return state.trusted ? "holds, by a trusted key" : "holds, by a key that is not trusted here";
}

bool is_signed(const std::vector<store::SignatureState>& signatures) {
  return std::ranges::any_of(signatures, [](const store::SignatureState& each) { return each.valid && each.trusted; });
}

Json json_of(const std::string& path, const store::Verification& found, const store::KeyRing& keys,
             const std::vector<store::SignatureState>& signatures) {
  Json json{{"file", path},
            {"sound", found.is_sound()},
            {"version", found.version > 0 ? Json(found.version) : Json()},
            {"rows", Json::object()},
            {"flaws", found.flaws},
            {"first_flaws", Json::array()},
            {"sealed", !found.seal.manifest.empty()},
            {"signed", is_signed(signatures)},
            {"signatures", Json::array()},
            {"unread_revocations", keys.unread_revocations()},
            {"notes", found.notes}};
  for (const store::TableCount& each : found.tables) json["rows"][each.table] = each.rows;
  for (const store::RowFlaw& flaw : found.first)
    json["first_flaws"].push_back({{"table", flaw.table}, {"key", flaw.key}, {"reason", flaw.reason}});
  for (const store::SignatureState& each : signatures)
    json["signatures"].push_back({{"fingerprint", each.fingerprint},
                                  {"name", each.name},
                                  {"valid", each.valid},
                                  {"trusted", each.trusted},
                                  {"revoked", each.revoked}});
  return json;
}

std::string counts_of(const store::Verification& found) {
  std::vector<std::string> parts;
  for (const store::TableCount& each : found.tables)
    if (each.rows > 0) parts.push_back(fmt::format("{} {}", each.table, format_count(each.rows)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void print_text(const std::string& path, const store::Verification& found,
                const std::vector<store::SignatureState>& signatures) {
  Table table({"", ""});
  table.row({"format", found.version > 0 ? fmt::format("version {}", found.version) : "text"});
  table.row({"rows", counts_of(found)});
  if (found.version == 0)
    table.row({"seal", "none: text has no seal and no signature"});
  else if (found.seal.manifest.empty())
    table.row({"seal", found.seal.flaw.empty() ? "none" : "does not hold"});
  else
    table.row({"seal", found.seal.flaw.empty() ? "holds" : "does not hold"});
  for (const store::SignatureState& each : signatures)
    table.row({"signature", fmt::format("{}: {}{}", standing(each), each.fingerprint,
                                        each.name.empty() ? "" : ", called " + manifest::quote(each.name))});
  for (const std::string& each : found.notes) table.row({"note", each});
  print(fmt::format("{}: {}\n{}", path, found.is_sound() ? "sound" : counted(found.flaws, "flaw"), table.text(2)));
  Table flaws({"table", "row", "what does not hold"});
  for (const store::RowFlaw& flaw : found.first)
    flaws.row({flaw.table, flaw.key.empty() ? "" : manifest::quote(flaw.key), flaw.reason});
  if (!flaws.empty()) print("\n" + flaws.text(2));
  const auto more = found.flaws - static_cast<std::int64_t>(found.first.size());
  if (more > 0) print(fmt::format("  ... {} more; --limit names more\n", format_count(more)));
}

/// Text is sound where each line is a record: the first that is none is an Error.
store::Verification verify_text(const std::string& path) try {
  const store::FileStats stats = store::read_text(path)->stats();
  store::Verification found;
  found.tables = {{"records", stats.records}, {"candidates", stats.candidates}};
  return found;
} catch (const Error& error) {
  throw Error(error.kind() == ErrorKind::bad_input ? ErrorKind::bad_file : error.kind(), error.what());
}

int run(const Globals& globals, const CacheVerifySettings& settings) {
  if (!std::filesystem::exists(settings.file))
    throw Error(ErrorKind::bad_input, fmt::format("the file {} does not exist", settings.file));
  refuse_text_by_other_name(settings.file);
  const store::Verification found =
      store::is_text(settings.file) ? verify_text(settings.file) : store::verify(settings.file, settings.limit);
  const store::KeyRing keys = code_trust(globals).keys;
  const auto signatures = store::signature_states(found.seal, keys);
  if (globals.json)
    print_json(json_of(settings.file, found, keys, signatures));
  else
    print_text(settings.file, found, signatures);
  const bool lacks_signature =
      settings.require_signature && (!is_signed(signatures) || !keys.unread_revocations().empty());
  if (lacks_signature && !globals.json)
    print(keys.unread_revocations().empty()
              ? "no signature of a trusted key holds, and --require-signature asks for one\n"
              : "a key may be revoked by what cannot be read, and --require-signature asks for one that is not\n");
  return found.is_sound() && !lacks_signature ? exit_good : exit_wrong;
}

}  // namespace

void add_cache_verify(CLI::App& cache, Chosen& chosen) {
  CLI::App* command = add_command<CacheVerifySettings>(
      cache, chosen, "verify", "Read every row of a file, and name those that do not hold", declare, run, takes_keys);
  command->footer(
      "Checks SQLite's structure and indexes, orphaned rows, every digest and value, that the machine code unpacks, the seal, and\n"
      "each signature against the trusted keys. The file is opened read-only; writers wait meanwhile. Kiln treats a row that does\n"
      "not hold as absent, and an overlay deletes it at its next use. Of text, .jsonl, each line is read as a record.\n"
      "Examples:\n  kiln cache verify h200.kiln --trusted-keys keys/\n"
      "  kiln cache verify h200.kiln --trusted-keys keys/ --require-signature     in CI, before a release\n"
      "Exit status: 0 sound; 1 some rows, the seal or a signature do not hold, or --require-signature finds no signature of a\n"
      "trusted key, or a revocation that cannot be read; 4 the whole file is refused: not a .kiln file, truncated, of a newer\n"
      "format, or not readable, or text with a line that is no record.");
}

}  // namespace kiln::cli
