// How much a file holds.
#include <map>

#include "store/tables.hpp"

namespace kiln::store {
namespace {

std::int64_t count(Connection& connection, std::string_view sql) {
  Query query = connection.query(sql);
  return query.step() ? query.integer(0) : 0;
}

}  // namespace

FileStats read_stats(Connection& connection) {
  FileStats stats;
  stats.records = count(connection, "SELECT count(*) FROM record");
  stats.cubins = count(connection, "SELECT count(*) FROM cubin");
  stats.choices = count(connection, "SELECT count(*) FROM choice");
  stats.candidates = count(connection, "SELECT count(*) FROM candidate");
  stats.leases = count(connection, "SELECT count(*) FROM lease");
  stats.histogram_rows = count(connection, "SELECT count(*) FROM histogram");
  stats.cubin_bytes = count(connection, "SELECT coalesce(sum(length(frame)), 0) FROM image");
  stats.cubin_image_bytes = count(connection, "SELECT coalesce(sum(image_bytes), 0) FROM cubin");
  stats.quarantined = count(connection, "SELECT count(*) FROM quarantine");
  const std::int64_t page = count(connection, "PRAGMA page_size");
  stats.file_bytes = count(connection, "PRAGMA page_count") * page;
  stats.free_bytes = count(connection, "PRAGMA freelist_count") * page;
  return stats;
}

std::vector<OpBytes> read_bytes_by_op(Connection& connection) {
  std::map<std::string, OpBytes> ops;
  {
    Query query = connection.query(
        "SELECT op, count(*), sum(length(key) + length(bucket) + 256 + (SELECT coalesce(sum(length(config) + "
        "length(compiler) + 192), 0) FROM choice WHERE record = id) + (SELECT count(*) * 160 FROM candidate "
        "WHERE record = id)) FROM record GROUP BY op");
    while (query.step()) {
      OpBytes& of = ops[std::string(query.text(0))];
      of.records = query.integer(1);
      of.record_bytes = query.integer(2);
    }
  }
  {
    Query query =
        connection.query("SELECT op, count(*), sum(length(frame)) FROM cubin JOIN image ON cubin = id GROUP BY op");
    while (query.step()) {
      OpBytes& of = ops[std::string(query.text(0))];
      of.cubins = query.integer(1);
      of.cubin_bytes = query.integer(2);
    }
  }
  std::vector<OpBytes> list;
  for (auto& [op, bytes] : ops) {
    bytes.op = op;
    list.push_back(std::move(bytes));
  }
  return list;
}

}  // namespace kiln::store
