// The tables of a .kiln file, over a connection. Writers expect a write transaction around them; each row's digest is
// written and checked here.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/file.hpp"
#include "store/integrity.hpp"
#include "store/sqlite.hpp"

namespace kiln::store {

/// Appends to `flaws` every row that was met and not believed; such a row reads as absent.
using Flaws = std::vector<Flaw>;

std::optional<Record> find_record(Connection& connection, std::string_view key, bool with_candidates, Flaws& flaws);
std::vector<Record> list_records(Connection& connection, std::string_view op, bool with_candidates, Flaws& flaws);
void put_record(Connection& connection, const Record& record);
bool remove_record(Connection& connection, std::string_view key);

std::optional<CubinRow> find_cubin(Connection& connection, const spec::Digest& key, Flaws& flaws);
std::vector<CubinRow> list_cubins(Connection& connection, Flaws& flaws);
/// Distinct, sorted; not covered by a digest check: a wrong one only forms a key that nothing has.
std::vector<std::string> list_compilers(Connection& connection);
/// A cubin that is already there is kept unless `replace`.
void put_cubin(Connection& connection, const PackedCubin& cubin, const spec::Digest& digest, bool replace);

bool acquire_lease(Connection& connection, std::string_view key, std::string_view holder, std::int64_t term_seconds);
void release_lease(Connection& connection, std::string_view key, std::string_view holder);

void add_to_histogram(Connection& connection, const HistogramRow& row);
std::vector<HistogramRow> list_histogram(Connection& connection, Flaws& flaws);

FileStats read_stats(Connection& connection);

/// The seal: how many records, candidates and cubins there are, and a digest over their digests in key order.
void write_manifest(Connection& connection);
void remove_manifest(Connection& connection);
/// How the row counts differ from the manifest, or an empty string when they agree or there is no manifest.
std::string manifest_mismatch(Connection& connection);

}  // namespace kiln::store
