// Which files may supply machine code: those that the trust policy, or a trusted key's signature, allows.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/options.hpp"
#include "manifest/catalogue.hpp"
#include "store/custody.hpp"
#include "store/file.hpp"
#include "store/key_ring.hpp"

namespace kiln::store {

/// Throws Error(bad_input) unless `word` is "owner" or "signed"; `from` names the word's source in the message.
TrustPolicy parse_trust_policy(std::string_view word, std::string_view from);
/// Returns `chosen`, else $KILN_TRUST, else owner. Throws Error(bad_input) when $KILN_TRUST is neither word.
TrustPolicy trust_policy(std::optional<TrustPolicy> chosen);

/// Returns a warning for each op that was read from a folder that all users may write. Its code is
/// compiled and run.
std::vector<std::string> ops_of_others(const manifest::Catalogue& ops);

struct CodeTrust {
  TrustPolicy policy = TrustPolicy::owner;
  KeyRing keys = {};
};
/// Returns whether machine code of a file other than the user's own overlay may be loaded or copied, and the rule that
/// decides. Signatures count for read-only files. A file in memory is trusted, because this process filled it.
Trust judge_code(const File& file, const CodeTrust& trust);

}  // namespace kiln::store
