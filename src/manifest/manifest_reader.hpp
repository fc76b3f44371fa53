// Typed access to one manifest file. Every failure is Error(bad_manifest): "FILE:LINE: found X, expected Y". A reader
// that collects mistakes keeps those that attempt() meets, and reads on.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/error.hpp"
#include "manifest/mistakes.hpp"
#include "manifest/op.hpp"
#include "manifest/toml_document.hpp"

namespace kiln::manifest {

/// Which names an expression may use, by the time at which its value must be known.
enum class Known : std::uint8_t {
  device,      // for a device: types, choices and device facts
  plan,        // when a plan is made: the above, parameters, and axes of policy `exact` for all types and choices
  bucket,      // for a whole bucket: the above and every axis
  every_rank,  // at each launch, and equal on all ranks of a team: all but run-time reals and the rank
  launch,      // at each launch: all but run-time reals
};

class ManifestReader {
 public:
  /// `mistakes`, which outlives the reader: where attempt() keeps errors; null: it throws them.
  explicit ManifestReader(std::string file, std::vector<Mistake>* mistakes = nullptr)
      : file_(std::move(file)), mistakes_(mistakes), earlier_(mistakes == nullptr ? 0 : mistakes->size()) {}
  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  /// The parts that the file includes, as messages show them. Errors in one must begin with its name.
  [[nodiscard]] const std::vector<std::string>& parts() const noexcept { return parts_; }
  void add_part(std::string file) { parts_.push_back(std::move(file)); }

  /// "FILE:LINE"
  [[nodiscard]] std::string place_of(const Line& line) const;
  [[noreturn]] void fail(const Line& line, std::string_view found, std::string_view expected) const;

  /// Runs `read`, and returns whether it threw no Error(bad_manifest). Throws that error unless mistakes are collected.
  /// Callers put something in place of what was not read: a name that is declared wrongly is still known, so that the
  /// lines that use it are no mistakes.
  template <class Read>
  bool attempt(Read read) const {
    if (mistakes_ == nullptr) {
      read();
      return true;
    }
    try {
      read();
      return true;
    } catch (const Error& error) {
      keep(error);
      return false;
    }
  }

  /// Whether this reader kept a mistake at this line, so that what follows from it is none.
  [[nodiscard]] bool has_mistake_at(const Line& line) const;
  /// Whether one in this file, in its parts or in op.toml was kept.
  [[nodiscard]] bool has_mistakes() const;
  /// Ends an attempt after mistakes that were kept, where nothing that follows could be read rightly.
  [[noreturn]] void stop() const;

  /// Throws when `table` is no table, and attempts that each key is one of `known`. `where` names the table: "[op]".
  void check_keys(const TomlValue& table, std::string_view where, std::initializer_list<std::string_view> known) const;
  /// Throws when the key is missing.
  [[nodiscard]] const TomlValue& required(const TomlValue& table, std::string_view where, std::string_view key) const;

  // `what` names the value in messages: "the bucket policy".
  [[nodiscard]] const std::string& text(const TomlValue& value, std::string_view what) const;
  [[nodiscard]] std::int64_t integer(const TomlValue& value, std::string_view what) const;
  [[nodiscard]] std::int64_t integer(const TomlValue& value, std::string_view what, std::int64_t least) const;
  [[nodiscard]] double real(const TomlValue& value, std::string_view what) const;
  [[nodiscard]] bool boolean(const TomlValue& value, std::string_view what) const;
  [[nodiscard]] const std::vector<TomlValue>& list(const TomlValue& value, std::string_view what) const;
  [[nodiscard]] const std::vector<TomlEntry>& table(const TomlValue& value, std::string_view what) const;

  // For optional keys of a table.
  [[nodiscard]] std::string text_or(const TomlValue& table, std::string_view key, std::string_view otherwise) const;
  [[nodiscard]] bool boolean_or(const TomlValue& table, std::string_view key, bool otherwise) const;

  /// Returns the value's index in `words`. Throws, listing them, when it is not there.
  [[nodiscard]] std::size_t one_of(const TomlValue& value, std::string_view what,
                                   const std::vector<std::string>& words) const;

  /// Add a symbol or a term. An error has the file and line.
  int add(Symbols& symbols, Symbols::Symbol symbol, const Line& line) const;
  void define(Symbols& symbols, const std::string& name, const Expression& value, const Line& line) const;

  /// Parses a text or an integer.
  [[nodiscard]] Expression expression(const TomlValue& value, std::string_view what, const Symbols& symbols) const;
  /// Parses, and checks every name against `known`. `op` must have its axes and run-time values.
  [[nodiscard]] Expression expression(const TomlValue& value, std::string_view what, const Symbols& symbols,
                                      const Op& op, Known known) const;
  /// Parses a number, or a text of which each name is an axis of policy `exact`.
  [[nodiscard]] RealExpression real_expression(const TomlValue& value, std::string_view what, const Op& op) const;
  void check_known(const Expression& expression, std::string_view what, const Symbols& symbols, const Op& op,
                   Known known, const Line& line) const;

 private:
  /// Called in a handler of `error`, which it throws again unless it is a mistake in a manifest.
  void keep(const Error& error) const;

  std::string file_;
  std::vector<std::string> parts_;
  std::vector<Mistake>* mistakes_;
  std::size_t earlier_;  // mistakes of other readers, which came first
};

/// Returns why the value in `slot` is not known at the time `known`, or an empty string when it is.
std::string why_not_known(const Symbols& symbols, const Op& op, int slot, Known known);

}  // namespace kiln::manifest
