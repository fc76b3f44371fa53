// Counts of a file's rows and bytes.
#include <map>

#include "store/tables.hpp"

namespace kiln::store {

FileStats read_stats(Connection& connection) {
  FileStats stats;
  stats.records = connection.number("SELECT count(*) FROM record");
  stats.cubins = connection.number("SELECT count(*) FROM cubin");
  stats.choices = connection.number("SELECT count(*) FROM choice");
  stats.candidates = connection.number("SELECT count(*) FROM candidate");
  stats.leases = connection.number("SELECT count(*) FROM lease");
  stats.histogram_rows = connection.number("SELECT count(*) FROM histogram");
  stats.cubin_bytes = connection.number("SELECT coalesce(sum(length(frame)), 0) FROM image");
  stats.cubin_image_bytes = connection.number("SELECT coalesce(sum(image_bytes), 0) FROM cubin");
  stats.quarantined = connection.number("SELECT count(*) FROM quarantine");
  const std::int64_t page = connection.number("PRAGMA page_size");
  stats.file_bytes = connection.number("PRAGMA page_count") * page;
  stats.free_bytes = connection.number("PRAGMA freelist_count") * page;
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
