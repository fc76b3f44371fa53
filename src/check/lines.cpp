#include "check/lines.hpp"

#include "manifest/sources.hpp"

namespace kiln::check {

using manifest::TomlValue;

Lines::Lines(const manifest::Op& op) {
  for (const manifest::SourceFile& each : op.manifests)
    files_.emplace(each.name, manifest::parse_toml(manifest::shown_file(op, each.name), each.text));
}

const TomlValue& Lines::file(const std::string& name) const {
  static const TomlValue none;
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

int line_at(const TomlValue& from, std::initializer_list<std::string_view> keys) {
  const TomlValue* at = &from;
  for (const std::string_view key : keys) {
    const TomlValue* const next = at->find(key);
    if (next == nullptr) break;
    at = next;
  }
  return at->line;
}

int line_of_item(const TomlValue* list, std::size_t index, int otherwise) {
  if (list == nullptr) return otherwise;
  return index < list->items.size() ? list->items[index].line : list->line;
}

}  // namespace kiln::check
