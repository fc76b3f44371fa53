// Whose machine code is loaded: a file's own, when the policy or a trusted key's signature says so.
#pragma once

#include <optional>
#include <string_view>

#include "kiln/options.hpp"
#include "store/custody.hpp"
#include "store/file.hpp"
#include "store/key_ring.hpp"

namespace kiln::store {

std::string_view to_string(TrustPolicy policy) noexcept;  // "owner", "signed"
/// Throws Error(bad_input) for anything but "owner" and "signed"; `from` says where the word stands.
TrustPolicy parse_trust_policy(std::string_view word, std::string_view from);
/// `chosen`, else what $KILN_TRUST says, else owner. Throws Error(bad_input) when it says something else.
TrustPolicy trust_policy(std::optional<TrustPolicy> chosen);

struct CodeTrust {
  TrustPolicy policy = TrustPolicy::owner;
  KeyRing keys = {};
};
/// Whether machine code of a file other than the user's own overlay may be loaded or copied, and which rule says so. A
/// signature counts for files that are open for reading only. A file in memory was filled by this process.
Trust judge_code(const File& file, const CodeTrust& trust);

}  // namespace kiln::store
