#include "store/trust.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "kiln/error.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::vector<fs::path> split(std::string_view paths) {
  std::vector<fs::path> parts;
  while (!paths.empty()) {
    const auto colon = std::min(paths.find(':'), paths.size());
    if (colon > 0) parts.emplace_back(paths.substr(0, colon));
    paths.remove_prefix(std::min(colon + 1, paths.size()));
  }
  return parts;
}

std::vector<fs::path> users_key_folders() {
  if (const auto named = environment("KILN_TRUSTED_KEYS"); !named.empty()) return split(named);
  // The XDG specification has a relative path ignored.
  if (const fs::path config = environment("XDG_CONFIG_HOME"); config.is_absolute())
    return {config / "kiln" / "trusted"};
  if (const fs::path home = environment("HOME"); home.is_absolute()) return {home / ".config" / "kiln" / "trusted"};
  return {};
}

}  // namespace

std::string_view to_string(TrustPolicy policy) noexcept { return policy == TrustPolicy::owner ? "owner" : "signed"; }

TrustPolicy parse_trust_policy(std::string_view word, std::string_view from) {
  if (word == "owner") return TrustPolicy::owner;
  if (word == "signed") return TrustPolicy::signed_files;
  throw Error(
      ErrorKind::bad_input,
      fmt::format("{} is '{}', expected owner (files of this user or root, and signed ones) or signed", from, word));
}

TrustPolicy trust_policy(std::optional<TrustPolicy> chosen) {
  if (chosen) return *chosen;
  const auto word = environment("KILN_TRUST");
  return word.empty() ? TrustPolicy::owner : parse_trust_policy(word, "KILN_TRUST");
}

std::vector<fs::path> key_folders(std::span<const fs::path> chosen) {
  auto folders = chosen.empty() ? users_key_folders() : std::vector<fs::path>(chosen.begin(), chosen.end());
  folders.emplace_back("/etc/kiln/trusted");
  return folders;
}

}  // namespace kiln::store
