// A made-up next version of the format, with the migration step that leads to it.
#pragma once

#include <string>

#include "store/format.hpp"
#include "store/integrity.hpp"
#include "store/tables.hpp"

namespace kiln::store {

inline constexpr std::string_view made_up_table = "CREATE TABLE note (record TEXT PRIMARY KEY) STRICT, WITHOUT ROWID";
inline constexpr std::string_view made_up_regime = "lukewarm";

/// Adds a table and changes a field of every record, digests included.
inline void made_up_step(Connection& connection) {
  connection.execute(made_up_table);
  Flaws flaws;
  for (Record& record : list_records(connection, {}, true, flaws)) {
    record.regime = made_up_regime;
    put_record(connection, record);
  }
  set_aside(connection, flaws);
}

inline const Format& made_up_format() {
  static const std::string schema = [] {
    std::string sql(schema_sql());
    const std::string before = "user_version = " + std::to_string(schema_version);
    sql.replace(sql.find(before), before.size(), "user_version = " + std::to_string(schema_version + 1));
    return sql + std::string(made_up_table) + ";\n";
  }();
  static const MigrationStep steps[] = {{schema_sql(), made_up_step}};
  static const Format format{schema_version + 1, schema, steps};
  return format;
}

}  // namespace kiln::store
