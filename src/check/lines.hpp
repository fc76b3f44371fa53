// Where an op's expressions stand in its files: an Op holds no lines but those of passes.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "manifest/op.hpp"
#include "manifest/toml_document.hpp"

namespace kiln::check {

class Lines {
 public:
  /// Reads the manifests of the op again, with what they include. They must be TOML.
  explicit Lines(const manifest::Op& op);

  [[nodiscard]] const manifest::TomlValue& op() const { return file("op.toml"); }
  [[nodiscard]] const manifest::TomlValue& of(const manifest::Implementation& implementation) const {
    return file(implementation.name + ".toml");
  }

 private:
  [[nodiscard]] const manifest::TomlValue& file(const std::string& name) const;

  std::map<std::string, manifest::TomlValue, std::less<>> files_;
};

/// Returns the value under these keys, one inside the other, or null.
const manifest::TomlValue* value_at(const manifest::TomlValue& from, std::initializer_list<std::string_view> keys);
/// Returns the line of that value, else of the last table on the way to it.
manifest::Line line_at(const manifest::TomlValue& from, std::initializer_list<std::string_view> keys);
/// Returns the line of item `index` of a list, else that of the list; of null: `otherwise`.
manifest::Line line_of_item(const manifest::TomlValue* list, std::size_t index, const manifest::Line& otherwise);

}  // namespace kiln::check
