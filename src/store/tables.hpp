// The tables of a .kiln file, over a connection. Writers expect a write transaction around them; each row's digest is
// written and checked here.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/file.hpp"
#include "store/integrity.hpp"
#include "store/seal.hpp"
#include "store/sqlite.hpp"

namespace kiln::store {

/// Appends to `flaws` every row that was met and not believed; such a row reads as absent.
using Flaws = std::vector<Flaw>;

std::optional<Record> find_record(Connection& connection, std::string_view key, bool with_candidates, Flaws& flaws);
std::vector<Record> list_records(Connection& connection, std::string_view op, bool with_candidates, Flaws& flaws);
void put_record(Connection& connection, const Record& record);
bool remove_record(Connection& connection, std::string_view key);

/// At most `limit` records whose key comes after `after`, by key, with their candidates.
std::vector<Record> list_records_after(Connection& connection, std::string_view after, std::int64_t limit,
                                       Flaws& flaws);

/// Every record that holds, with its row's id, by key.
void each_record(Connection& connection, const std::function<void(std::int64_t, const Record&)>& visit);

/// With `accepted`, a row of any other digest counts as a flaw.
std::optional<CubinRow> find_cubin(Connection& connection, const manifest::Digest& key, Flaws& flaws,
                                   const DigestSet* accepted = nullptr);
std::optional<PackedCubin> find_packed(Connection& connection, const manifest::Digest& key, Flaws& flaws,
                                       const DigestSet* accepted = nullptr);
/// At most `limit` cubins whose key comes after `after`, by key; an empty `after` comes before them all.
std::vector<PackedCubin> list_cubins_after(Connection& connection, std::span<const std::byte> after, std::int64_t limit,
                                           Flaws& flaws, const DigestSet* accepted = nullptr);
/// Every cubin without its image, which its digest covers, so that the digest is not checked.
void each_cubin_head(Connection& connection, const std::function<void(std::int64_t, const PackedCubin&)>& visit);
/// Distinct, sorted; not covered by a digest check: a wrong one only forms a key that nothing has.
std::vector<std::string> list_compilers(Connection& connection);
/// A cubin that is already there is kept unless `replace`; false then.
bool put_cubin(Connection& connection, const PackedCubin& cubin, const manifest::Digest& digest, bool replace);

bool acquire_lease(Connection& connection, std::string_view key, std::string_view holder, std::int64_t term_seconds);
std::string lease_holder(Connection& connection, std::string_view key);
void release_lease(Connection& connection, std::string_view key, std::string_view holder);
void check_leases(Connection& connection, Flaws& flaws);

void add_to_histogram(Connection& connection, const HistogramRow& row);
std::vector<HistogramRow> list_histogram(Connection& connection, Flaws& flaws);

/// Adds to what is there; `last_use` never goes back.
void add_to_usage(Connection& connection, const Usage& usage);
std::vector<Usage> list_usage(Connection& connection, Flaws& flaws);

FileStats read_stats(Connection& connection);
std::vector<OpBytes> read_bytes_by_op(Connection& connection);

/// Of the pages that hold something.
std::int64_t used_bytes(Connection& connection);
/// Inside a write transaction.
PruneReport prune(Connection& connection, const PruneRule& rule);

}  // namespace kiln::store
