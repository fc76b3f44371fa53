// Reading and writing the tables of a .kiln file. Functions that write need an open write transaction. They write each
// row's digest, and functions that read check it. All throw SqliteFailure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/file_types.hpp"
#include "store/integrity.hpp"
#include "store/prune.hpp"
#include "store/seal.hpp"
#include "store/sqlite.hpp"

namespace kiln::store {

/// Functions that read append the rows that failed their check to a Flaws, and treat them as absent.
using Flaws = std::vector<Flaw>;

std::optional<Record> find_record(Connection& connection, std::string_view key, bool with_candidates, Flaws& flaws);
std::vector<Record> list_records(Connection& connection, std::string_view op, bool with_candidates, Flaws& flaws);
void put_record(Connection& connection, const Record& record);
bool remove_record(Connection& connection, std::string_view key);

/// Returns up to `limit` records with keys greater than `after`, in the order of their keys, with their candidates.
std::vector<Record> list_records_after(Connection& connection, std::string_view after, std::int64_t limit,
                                       Flaws& flaws);

/// Returns the distinct device classes, sorted. Digests are not checked.
std::vector<std::string> list_device_classes(Connection& connection);
/// Calls `visit` with the row id and each valid record, in the order of their keys.
void each_record(Connection& connection, const std::function<void(std::int64_t, const Record&)>& visit);

/// If `accepted` is given, a row whose digest is not in it counts as a flaw, here and below.
std::optional<CubinRow> find_cubin(Connection& connection, const manifest::Digest& key, Flaws& flaws,
                                   const DigestSet* accepted = nullptr);
std::optional<PackedCubin> find_packed(Connection& connection, const manifest::Digest& key, Flaws& flaws,
                                       const DigestSet* accepted = nullptr);
/// Whether there is a row of the key. Its digest is not checked.
bool has_cubin(Connection& connection, const manifest::Digest& key);
/// Returns up to `limit` cubins with keys greater than `after`, in the order of their keys; an empty `after` precedes
/// all keys.
std::vector<PackedCubin> list_cubins_after(Connection& connection, std::span<const std::byte> after, std::int64_t limit,
                                           Flaws& flaws, const DigestSet* accepted = nullptr);
/// Calls `visit` with the row id and each cubin without its image. Digests are not checked, since they cover the image.
void each_cubin_head(Connection& connection, const std::function<void(std::int64_t, const PackedCubin&)>& visit);
/// Returns the distinct compilers, sorted. Digests are not checked: a wrong compiler only forms a key that has no row.
std::vector<std::string> list_compilers(Connection& connection);
/// Returns false and changes nothing when the key is stored already and `replace` is false.
bool put_cubin(Connection& connection, const PackedCubin& cubin, const manifest::Digest& digest, bool replace);

bool acquire_lease(Connection& connection, std::string_view key, std::string_view holder, std::int64_t term_seconds);
std::string lease_holder(Connection& connection, std::string_view key);
void release_lease(Connection& connection, std::string_view key, std::string_view holder);
void check_leases(Connection& connection, Flaws& flaws);

void add_to_histogram(Connection& connection, const HistogramRow& row);
std::vector<HistogramRow> list_histogram(Connection& connection, Flaws& flaws);

/// Adds to the stored count. `last_use` never decreases.
void add_to_usage(Connection& connection, const Usage& usage);
std::vector<Usage> list_usage(Connection& connection, Flaws& flaws);

FileStats read_stats(Connection& connection);

/// Returns why reading all rows would not give them all, or an empty string: damaged pages, or an index that lacks
/// rows. Reads every page.
std::string damage_of(Connection& connection);
/// Reads the first rows of each table and index of the present version. Throws SqliteFailure, damaged, where they
/// cannot be read.
void read_each_table(Connection& connection);
std::vector<OpBytes> read_bytes_by_op(Connection& connection);

/// Returns the bytes of the pages that are not free.
std::int64_t used_bytes(Connection& connection);
PruneReport prune(Connection& connection, const PruneRule& rule);

}  // namespace kiln::store
