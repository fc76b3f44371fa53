// Whose machine code is loaded.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kiln/options.hpp"

namespace kiln::store {

std::string_view to_string(TrustPolicy policy) noexcept;  // "owner", "signed"
/// `chosen`, else what $KILN_TRUST says, else owner. Throws Error(bad_input) when it says something else.
TrustPolicy trust_policy(std::optional<TrustPolicy> chosen);
/// Throws Error(bad_input) for anything but "owner" and "signed"; `from` says where the word stands.
TrustPolicy parse_trust_policy(std::string_view word, std::string_view from);

/// `chosen`, else those of $KILN_TRUSTED_KEYS, else $XDG_CONFIG_HOME/kiln/trusted or $HOME/.config/kiln/trusted; then
/// /etc/kiln/trusted.
std::vector<std::filesystem::path> key_folders(std::span<const std::filesystem::path> chosen);

}  // namespace kiln::store
