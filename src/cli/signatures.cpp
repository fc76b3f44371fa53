#include "cli/signatures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/output.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "store/merge_order.hpp"
#include "store/signing.hpp"
#include "store/transfer.hpp"

namespace kiln::cli {
namespace {

std::vector<manifest::Digest> keys_of_code(const std::string& path) try {
  std::error_code ignored;
  std::vector<manifest::Digest> keys;
  if (!std::filesystem::is_regular_file(path, ignored)) return keys;
  const auto file = store::File::open(path, store::Access::read_only);
  store::Cursor<store::PackedCubin> cubins(*file);
  while (cubins.front() != nullptr) keys.push_back(cubins.take().key);
  return keys;
} catch (const Error&) {
  return {};
}

}  // namespace

std::size_t signatures_of(const std::string& path) try {
  std::error_code ignored;
  if (path.empty() || store::is_text(path) || !std::filesystem::exists(path, ignored)) return 0;
  return store::signature_states(path, store::KeyRing()).size();
} catch (const Error&) {
  return 0;
}

FormerCode::FormerCode(const std::string& path) : path_(path), keys_(keys_of_code(path)) {}

std::int64_t FormerCode::say_lost(const Globals& globals) const try {
  if (keys_.empty()) return 0;
  const auto file = store::File::open(path_, store::Access::read_only);
  const auto lost = std::ranges::count_if(keys_, [&](const manifest::Digest& key) { return !file->has_cubin(key); });
  if (lost > 0 && !globals.quiet)
    note(fmt::format("{} lacks {} of its former content; what is needed is compiled where its records are used", path_,
                     counted(lost, "cubin")));
  return lost;
} catch (const Error&) {  // the file is written, and cannot be read again
  return 0;
}

void say_unsigned(const Globals& globals, const std::string& path, std::size_t lost) {
  if (lost == 0 || globals.quiet) return;
  note(fmt::format(
      "{} is not signed: {} of its former content or of its inputs cannot be kept; sign it with kiln cache sign {} --key KEY.pem",
      path, counted(static_cast<std::int64_t>(lost), "signature"), path));
}

}  // namespace kiln::cli
