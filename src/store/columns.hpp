// Visitors for the field lists of fields.hpp that bind, read and name the columns of a row.
#pragma once

#include <algorithm>
#include <concepts>
#include <string>
#include <type_traits>

#include "store/fields.hpp"
#include "store/sqlite.hpp"

namespace kiln::store {

/// Collects "key, op, revision, " and as many "?, ?, ?, ", each with a trailing comma.
struct Columns {
  std::string names, marks;
  template <class T>
  void operator()(const char* name, const T&) {
    names.append(name).append(", ");
    marks.append("?, ");
  }
};

struct Binder {
  Query& query;
  void operator()(const char*, const std::string& text) const { query.bind(std::string_view(text)); }
  void operator()(const char*, Verdict verdict) const { query.bind(to_string(verdict)); }
  void operator()(const char*, Role role) const { query.bind(to_string(role)); }
  void operator()(const char*, std::integral auto number) const { query.bind(static_cast<std::int64_t>(number)); }
  void operator()(const char*, double number) const { query.bind(number); }
};

/// Reads columns in order. A value that its field cannot hold is read as another value, so the row's digest fails.
struct ColumnReader {
  const Query& query;
  int column;
  void operator()(const char*, std::string& text) { text = query.text(column++); }
  void operator()(const char*, Verdict& verdict) {
    verdict = parse_verdict(query.text(column++)).value_or(Verdict::not_timed);
  }
  void operator()(const char*, Role& role) { role = parse_role(query.text(column++)).value_or(Role::fastest); }
  void operator()(const char*, bool& truth) { truth = query.integer(column++) != 0; }
  void operator()(const char*, std::integral auto& number) {
    number = static_cast<std::remove_reference_t<decltype(number)>>(query.integer(column++));
  }
  void operator()(const char*, double& number) { number = query.real(column++); }
};

inline bool same_bytes(std::span<const std::byte> stored, const manifest::Digest& digest) {
  return stored.size() == digest.size() && std::equal(stored.begin(), stored.end(), digest.begin());
}

}  // namespace kiln::store
