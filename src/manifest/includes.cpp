#include "manifest/includes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "manifest/limits.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

bool is_list_of_conditions(std::string_view table) { return table == "constraints" || table == "search"; }

bool is_table(const TomlEntry& entry, std::string_view key) {
  return entry.key == key && entry.value.kind == TomlValue::Kind::table;
}

TomlEntry* entry_of(TomlValue& table, std::string_view key) {
  const auto found = std::ranges::find(table.entries, key, &TomlEntry::key);
  return found == table.entries.end() ? nullptr : &*found;
}

/// What becomes of an entry that both sides have.
enum class Twice : std::uint8_t {
  overrides,  // the one that is added counts, in the place of the other
  refused     // as between two parts
};

/// A document with what it includes.
struct Whole {
  TomlValue tables;
  TomlValue first_pass;  // entries of [pass] of parts, until a document with passes includes them
};

class Inclusion {
 public:
  Inclusion(ManifestReader& reader, std::span<const SourceFile> files, const Op& op)
      : reader_(reader), files_(files), op_(op) {}

  /// Returns the manifest with what it includes in place.
  TomlValue in_place(TomlValue manifest) {
    Whole read = whole(std::move(manifest), reader_.file(), false);
    if (!read.first_pass.entries.empty())
      reader_.fail(read.first_pass.line, fmt::format("[pass], and no pass in {}", reader_.file()), "a [[pass]] there");
    return std::move(read.tables);
  }

 private:
  /// `file`: as manifests include it, or the manifest's name.
  Whole whole(TomlValue document, const std::string& file, bool is_part) {
    Whole result;
    result.tables.line = result.first_pass.line = document.line;
    refuse_include_inside(document);
    open_.push_back(file);
    if (const TomlEntry* const include = entry_of(document, "include"))
      for (const TomlValue& each : reader_.list(include->value, "'include'"))
        if (const SourceFile* const part = find(each)) {
          Whole read = this->read(*part);
          add(result.tables, std::move(read.tables), Twice::refused);
          if (!read.first_pass.entries.empty())
            add_table(result.first_pass, std::move(read.first_pass), "[pass]", Twice::refused);
        }
    open_.pop_back();
    std::erase_if(document.entries, [](const TomlEntry& each) { return each.key == "include"; });
    if (TomlEntry* const pass = entry_of(document, "pass")) {
      if (pass->value.kind == TomlValue::Kind::array)
        fill_first(pass->value, result.first_pass);
      else if (is_part)
        add_table(result.first_pass, std::move(pass->value), "[pass]", Twice::overrides);
    }
    if (is_part) std::erase_if(document.entries, [](const TomlEntry& each) { return is_table(each, "pass"); });
    add(result.tables, std::move(document), Twice::overrides);
    return result;
  }

  /// TOML counts an `include` below a table's header to the table.
  void refuse_include_inside(const TomlValue& document) const {
    for (const TomlEntry& each : document.entries) {
      const TomlValue* const include = each.value.find("include");
      const bool names_parts = include != nullptr && !include->items.empty() && is_part(include->items.front().text);
      if (names_parts)
        reader_.fail(include->line, fmt::format("'include' in [{}]", each.key),
                     "it above all tables: the first lines of the file");
    }
  }

  /// The part that `include` names; null where it is in place already.
  const SourceFile* find(const TomlValue& named) {
    const std::string& name = reader_.text(named, "a part in 'include'");
    check_name(named);
    const SourceFile* part = find_in(files_, name);
    if (part == nullptr) part = find_in(common_parts(), name);
    if (part == nullptr) {
      const std::vector<std::string> names = known();
      reader_.fail(named.line, fmt::format("no part {}{}", quote(name), did_you_mean(name, names)),
                   names.empty() ? "a NAME.part.toml beside the manifest" : one_of(names));
    }
    if (std::ranges::find(open_, name) != open_.end())
      reader_.fail(named.line, fmt::format("the part {} in itself, by {}", quote(name), fmt::join(open_, ", ")),
                   "parts that do not include each other in a circle");
    if (std::ranges::find(done_, name) != done_.end()) return nullptr;
    if (done_.size() == max_parts)
      reader_.fail(named.line, fmt::format("more than {} parts", max_parts), "fewer, larger ones");
    done_.push_back(name);
    return part;
  }

  void check_name(const TomlValue& named) const {
    const std::string& name = named.text;
    const auto leaves = [&] {
      return name.starts_with('/') || name.starts_with("../") || name.find("/../") != std::string::npos ||
             (name.find('/') != std::string::npos && !name.starts_with("common/"));
    };
    if (leaves())
      reader_.fail(named.line, fmt::format("the part {}, which is neither the op's nor of common/", quote(name)),
                   "NAME.part.toml of the op's folder, or common/PATH.part.toml of the library");
    if (!is_part(name))
      reader_.fail(named.line, fmt::format("{} in 'include'", quote(name)),
                   "a file that ends in .part.toml: other manifests are implementations of their own");
  }

  static const SourceFile* find_in(std::span<const SourceFile> files, std::string_view name) {
    const auto found = std::ranges::find(files, name, &SourceFile::name);
    return found == files.end() ? nullptr : &*found;
  }

  [[nodiscard]] std::vector<std::string> known() const {
    std::vector<std::string> names;
    for (const std::span<const SourceFile> list : {files_, common_parts()})
      for (const SourceFile& each : list)
        if (is_part(each.name)) names.push_back(each.name);
    return names;
  }

  Whole read(const SourceFile& part) {
    const std::string shown = part.name.starts_with("common/") ? "templates/" + part.name : shown_file(op_, part.name);
    reader_.add_part(shown);
    TomlValue document = parse_toml_part(shown, part.text);
    reader_.check_keys(
        document, "a part",
        {"include", "parameters", "terms", "constraints", "search", "align", "default", "workspace", "pass"});
    return whole(std::move(document), part.name, true);
  }

  /// Adds the tables of `from`, a part or the manifest, to those of `to`.
  void add(TomlValue& to, TomlValue from, Twice twice) const {
    for (TomlEntry& each : from.entries) {
      TomlEntry* const there = entry_of(to, each.key);
      if (there == nullptr)
        to.entries.push_back(std::move(each));
      else if (each.key == "pass")
        add_passes(there->value, std::move(each.value));
      else if (is_list_of_conditions(each.key))
        add_conditions(there->value, each.value, each.key);
      else
        add_table(there->value, std::move(each.value), fmt::format("[{}]", each.key), twice);
    }
  }

  void add_table(TomlValue& to, TomlValue from, const std::string& where, Twice twice) const {
    static_cast<void>(reader_.table(to, where));
    static_cast<void>(reader_.table(from, where));
    to.line = from.line;
    for (TomlEntry& each : from.entries) {
      TomlEntry* const there = entry_of(to, each.key);
      if (there == nullptr) {
        to.entries.push_back(std::move(each));
      } else if (each.key == "model" && where == "[pass]") {
        add_table(there->value, std::move(each.value), "[pass.model]", twice);
      } else {
        if (twice == Twice::refused)
          reader_.fail(each.value.line,
                       fmt::format("{} of {}, which {}:{} gives too", quote(each.key), where, *there->value.line.part,
                                   there->value.line.number),
                       "one of them: only the manifest, or the part that includes it, overrides an entry");
        there->value = std::move(each.value);
      }
    }
  }

  void add_conditions(TomlValue& to, const TomlValue& from, const std::string& table) const {
    const std::string where = fmt::format("[{}]", table);
    const auto all_of = [&](const TomlValue& section) -> const TomlValue& {
      reader_.check_keys(section, where, {"all"});
      const TomlValue& all = reader_.required(section, where, "all");
      static_cast<void>(reader_.list(all, "'all'"));
      return all;
    };
    static_cast<void>(all_of(to));
    const TomlValue& added = all_of(from);
    TomlValue& all = entry_of(to, "all")->value;
    all.line = added.line;
    all.items.insert(all.items.end(), added.items.begin(), added.items.end());
    to.line = from.line;
  }

  /// Moves entries of [pass] of parts to the first of these passes.
  void fill_first(TomlValue& passes, TomlValue& entries) const {
    if (passes.items.empty() || entries.entries.empty()) return;
    add_table(entries, std::move(passes.items.front()), "[pass]", Twice::overrides);
    passes.items.front() = std::exchange(entries, {});
  }

  void add_passes(TomlValue& to, TomlValue from) const {
    static_cast<void>(reader_.list(to, "'pass'"));
    static_cast<void>(reader_.list(from, "'pass'"));
    to.line = from.line;
    for (TomlValue& each : from.items) to.items.push_back(std::move(each));
  }

  ManifestReader& reader_;
  std::span<const SourceFile> files_;
  const Op& op_;
  std::vector<std::string> open_;  // from the manifest to the part that is read
  std::vector<std::string> done_;  // parts that were read, or are
};

}  // namespace

TomlValue read_with_parts(ManifestReader& reader, std::string_view text, std::span<const SourceFile> files,
                          const Op& op) {
  return Inclusion(reader, files, op).in_place(parse_toml(reader.file(), text));
}

}  // namespace kiln::manifest
