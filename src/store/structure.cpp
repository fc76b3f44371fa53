// Damage that no row's digest shows: pages that do not hang together, and indexes that do not lead to every row.
#include <fmt/core.h>

#include <string_view>

#include "store/tables.hpp"

namespace kiln::store {
namespace {

/// quick_check names damaged pages before rows, and begins so where it does. A row of a wrong form fails its digest.
std::string page_damage(Connection& connection) {
  constexpr std::string_view pages = "*** in database";
  Query query = connection.query("PRAGMA quick_check(1)");
  if (!query.step() || !query.text(0).starts_with(pages)) return {};
  std::string text(query.text(0));
  text.erase(0, text.find('\n') + 1);
  return fmt::format("its pages are damaged ({})", text.substr(0, text.find('\n')));
}

/// Reads the table itself, and looks for each of its rows in the index of its keys.
std::string index_damage(Connection& connection, std::string_view what, std::string_view count, std::string_view lost) {
  const std::int64_t lacking = connection.number(lost);
  if (lacking == 0) return {};
  return fmt::format("its index leads to {} of its {} {}s; kiln cache compact FILE builds it anew",
                     connection.number(count) - lacking, connection.number(count), what);
}

}  // namespace

std::string damage_of(Connection& connection) try {
  if (auto damage = page_damage(connection); !damage.empty()) return damage;
  // The unary plus keeps SQLite from looking for the id instead.
  if (auto damage = index_damage(connection, "record", "SELECT count(*) FROM record NOT INDEXED",
                                 "SELECT count(*) FROM record AS r NOT INDEXED WHERE NOT EXISTS "
                                 "(SELECT 1 FROM record AS i WHERE i.key = r.key AND +i.id = r.id)");
      !damage.empty())
    return damage;
  if (auto damage =
          index_damage(connection, "record", "SELECT count(*) FROM record NOT INDEXED",
                       "SELECT count(*) FROM record AS r NOT INDEXED WHERE NOT EXISTS "
                       "(SELECT 1 FROM record AS i INDEXED BY record_by_op WHERE i.op = r.op AND i.id = r.id)");
      !damage.empty())
    return damage;
  return index_damage(connection, "cubin", "SELECT count(*) FROM cubin NOT INDEXED",
                      "SELECT count(*) FROM cubin AS r NOT INDEXED WHERE NOT EXISTS "
                      "(SELECT 1 FROM cubin AS i WHERE i.key = r.key AND +i.id = r.id)");
} catch (const SqliteFailure& failure) {
  if (!failure.damaged()) throw;
  return fmt::format("it cannot be read to its end ({})", failure.what());
}

void read_each_table(Connection& connection) {
  connection.execute(
      "SELECT EXISTS (SELECT 1 FROM meta) + EXISTS (SELECT 1 FROM record NOT INDEXED) + EXISTS (SELECT 1 FROM record "
      "INDEXED BY record_by_op) + EXISTS (SELECT key FROM record WHERE key > '') + EXISTS (SELECT 1 FROM choice) + "
      "EXISTS (SELECT 1 FROM candidate) + EXISTS (SELECT 1 FROM cubin NOT INDEXED) + EXISTS (SELECT key FROM cubin "
      "WHERE key > x'') + EXISTS (SELECT 1 FROM image) + EXISTS (SELECT 1 FROM lease) + EXISTS (SELECT 1 FROM "
      "histogram) + EXISTS (SELECT 1 FROM usage) + EXISTS (SELECT 1 FROM quarantine) + EXISTS (SELECT 1 FROM manifest) "
      "+ EXISTS (SELECT 1 FROM signature)");
}

}  // namespace kiln::store
