#include <fmt/core.h>

#include "store/columns.hpp"
#include "store/limits.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

struct RecordSql {
  std::string find, read, list, list_op, list_after, list_all, insert, choices, insert_choice, candidates, candidate,
      insert_candidate;
};

const RecordSql& record_sql() {
  static const auto& texts = *new RecordSql([] {
    const Record empty_record;
    const Choice empty_choice;
    const TriedCandidate empty_candidate;
    Columns record, choice, candidate;
    each_record_field(empty_record, record);
    each_choice_field(empty_choice, choice);
    each_candidate_field(empty_candidate, candidate);
    const auto select = fmt::format("SELECT id, {}digest FROM record", record.names);
    const auto select_candidate =
        fmt::format("SELECT position, {}digest FROM candidate WHERE record = ?", candidate.names);
    return RecordSql{select + " WHERE key = ?", select + " WHERE id = ?", select + " ORDER BY unix_seconds DESC, key",
                     select + " WHERE op = ? ORDER BY unix_seconds DESC, key", select + " WHERE key > ? ORDER BY key",
                     select + " ORDER BY key",
                     fmt::format("INSERT INTO record ({}digest) VALUES ({}?) RETURNING id", record.names, record.marks),
                     // One row more than the limit shows that there are too many.
                     fmt::format("SELECT {}position FROM choice WHERE record = ? ORDER BY position LIMIT {}",
                                 choice.names, max_choices + 1),
                     fmt::format("INSERT INTO choice ({}record, position) VALUES ({}?, ?)", choice.names, choice.marks),
                     select_candidate + " ORDER BY position", select_candidate + " AND position = ?",
                     fmt::format("INSERT INTO candidate (record, position, {}digest) VALUES (?, ?, {}?)",
                                 candidate.names, candidate.marks)};
  }());
  return texts;
}

struct RecordRow {
  std::int64_t id = 0;
  Record record;
  std::string flaw;
};

void read_choices(Connection& connection, std::int64_t id, std::vector<Choice>& choices) {
  Query query = connection.query(record_sql().choices);
  query.bind(id);
  while (query.step()) each_choice_field(choices.emplace_back(), ColumnReader{query, 0});
}

RecordRow read_record(Connection& connection, const Query& query) {
  RecordRow row;
  row.id = query.integer(0);
  ColumnReader reader{query, 1};
  each_record_field(row.record, reader);
  read_choices(connection, row.id, row.record.choices);
  row.flaw = same_bytes(query.blob(reader.column), digest_of(row.record)) ? flaw_of(row.record) : digest_mismatch;
  return row;
}

Flaw flaw_at(const RecordRow& row) {
  const auto remove = [id = row.id](Connection& connection) {
    {
      Query query = connection.query(record_sql().read);
      if (!query.bind(id).step() || read_record(connection, query).flaw.empty()) return false;
    }
    connection.query("DELETE FROM record WHERE id = ?").bind(id).run();
    return true;
  };
  return {"record", row.record.key, row.flaw, remove};
}

struct CandidateRow {
  std::int64_t position = 0;
  TriedCandidate candidate;
  std::string flaw;
};

CandidateRow read_candidate(const Query& query, std::string_view key) {
  CandidateRow row;
  row.position = query.integer(0);
  ColumnReader reader{query, 1};
  each_candidate_field(row.candidate, reader);
  const auto digest = digest_of(key, row.position, row.candidate);
  row.flaw = same_bytes(query.blob(reader.column), digest) ? flaw_of(row.candidate) : digest_mismatch;
  return row;
}

Flaw flaw_at(const RecordRow& record, const CandidateRow& row) {
  const auto remove = [id = record.id, key = record.record.key, position = row.position](Connection& connection) {
    {
      Query query = connection.query(record_sql().candidate);
      if (!query.bind(id).bind(position).step() || read_candidate(query, key).flaw.empty()) return false;
    }
    connection.query("DELETE FROM candidate WHERE record = ? AND position = ?").bind(id).bind(position).run();
    return true;
  };
  return {"candidate", fmt::format("{} #{}", record.record.key, row.position), row.flaw, remove};
}

void read_candidates(Connection& connection, RecordRow& row, Flaws& flaws) {
  Query query = connection.query(record_sql().candidates);
  query.bind(row.id);
  while (query.step()) {
    CandidateRow candidate = read_candidate(query, row.record.key);
    if (candidate.flaw.empty())
      row.record.candidates.push_back(std::move(candidate.candidate));
    else
      flaws.push_back(flaw_at(row, candidate));
  }
}

void put_candidate(Connection& connection, std::int64_t id, const std::string& key, std::int64_t position,
                   const TriedCandidate& candidate) {
  const auto digest = digest_of(key, position, candidate);
  Query query = connection.query(record_sql().insert_candidate);
  query.bind(id).bind(position);
  each_candidate_field(candidate, Binder{query});
  query.bind(std::span<const std::byte>(digest)).run();
}

void put_choice(Connection& connection, std::int64_t id, std::int64_t position, const Choice& choice) {
  Query query = connection.query(record_sql().insert_choice);
  each_choice_field(choice, Binder{query});
  query.bind(id).bind(position).run();
}

std::int64_t insert_record(Connection& connection, const Record& record) {
  const auto digest = digest_of(record);
  Query query = connection.query(record_sql().insert);
  each_record_field(record, Binder{query});
  query.bind(std::span<const std::byte>(digest)).step();
  const std::int64_t id = query.integer(0);
  query.run();
  return id;
}

}  // namespace

std::optional<Record> find_record(Connection& connection, std::string_view key, bool with_candidates, Flaws& flaws) {
  Query query = connection.query(record_sql().find);
  if (!query.bind(key).step()) return std::nullopt;
  RecordRow row = read_record(connection, query);
  // A damaged index can lead to the valid row of another key.
  if (row.flaw.empty() && row.record.key != key) row.flaw = digest_mismatch;
  if (!row.flaw.empty()) {
    flaws.push_back(flaw_at(row));
    return std::nullopt;
  }
  if (with_candidates) read_candidates(connection, row, flaws);
  return std::move(row.record);
}

std::vector<Record> list_records(Connection& connection, std::string_view op, bool with_candidates, Flaws& flaws) {
  std::vector<Record> records;
  Query query = connection.query(op.empty() ? record_sql().list : record_sql().list_op);
  if (!op.empty()) query.bind(op);
  while (query.step()) {
    RecordRow row = read_record(connection, query);
    if (!row.flaw.empty()) {
      flaws.push_back(flaw_at(row));
      continue;
    }
    if (with_candidates) read_candidates(connection, row, flaws);
    records.push_back(std::move(row.record));
  }
  return records;
}

std::vector<Record> list_records_after(Connection& connection, std::string_view after, std::int64_t limit,
                                       Flaws& flaws) {
  std::vector<Record> records;
  Query query = connection.query(record_sql().list_after);
  query.bind(after);
  while (static_cast<std::int64_t>(records.size()) < limit && query.step()) {
    RecordRow row = read_record(connection, query);
    if (!row.flaw.empty()) {
      flaws.push_back(flaw_at(row));
      continue;
    }
    read_candidates(connection, row, flaws);
    records.push_back(std::move(row.record));
  }
  return records;
}

std::vector<std::string> list_device_classes(Connection& connection) {
  std::vector<std::string> classes;
  Query query = connection.query("SELECT DISTINCT device_class FROM record ORDER BY device_class");
  while (query.step()) classes.emplace_back(query.text(0));
  return classes;
}

void each_record(Connection& connection, const std::function<void(std::int64_t, const Record&)>& visit) {
  Query query = connection.query(record_sql().list_all);
  while (query.step())
    if (const RecordRow row = read_record(connection, query); row.flaw.empty()) visit(row.id, row.record);
}

void put_record(Connection& connection, const Record& record) {
  remove_record(connection, record.key);
  const std::int64_t id = insert_record(connection, record);
  // A damaged file may hold rows for this id, which belonged to no record until now.
  connection.query("DELETE FROM choice WHERE record = ?").bind(id).run();
  connection.query("DELETE FROM candidate WHERE record = ?").bind(id).run();
  std::int64_t position = 0;
  for (const Choice& choice : record.choices) put_choice(connection, id, position++, choice);
  position = 0;
  for (const TriedCandidate& candidate : record.candidates)
    put_candidate(connection, id, record.key, position++, candidate);
}

bool remove_record(Connection& connection, std::string_view key) {
  connection.query("DELETE FROM record WHERE key = ?").bind(key).run();
  return connection.changes() > 0;
}

}  // namespace kiln::store
