#include "check/lines.hpp"

#include "manifest/includes.hpp"
#include "manifest/sources.hpp"

namespace kiln::check {

using manifest::TomlValue;

Lines::Lines(const manifest::Op& op) {
  for (const manifest::SourceFile& each : op.manifests) {
    if (manifest::is_part(each.name)) continue;
    manifest::ManifestReader reader(manifest::shown_file(op, each.name));
    files_.emplace(each.name, manifest::read_with_parts(reader, each.text, op.manifests, op));
  }
}

const TomlValue& Lines::file(const std::string& name) const {
  static const auto& none = *new TomlValue;
  const auto found = files_.find(name);
  return found == files_.end() ? none : found->second;
}

const TomlValue* value_at(const TomlValue& from, std::initializer_list<std::string_view> keys) {
  const TomlValue* at = &from;
  for (const std::string_view key : keys) {
    at = at->find(key);
    if (at == nullptr) return nullptr;
  }
  return at;
}

manifest::Line line_at(const TomlValue& from, std::initializer_list<std::string_view> keys) {
  const TomlValue* at = &from;
  for (const std::string_view key : keys) {
    const TomlValue* const next = at->find(key);
    if (next == nullptr) break;
    at = next;
  }
  return at->line;
}

manifest::Line line_of_item(const TomlValue* list, std::size_t index, const manifest::Line& otherwise) {
  if (list == nullptr) return otherwise;
  return index < list->items.size() ? list->items[index].line : list->line;
}

}  // namespace kiln::check
