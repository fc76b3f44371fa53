#include "store/trust.hpp"

#include <fmt/core.h>

#include "kiln/error.hpp"
#include "manifest/environment.hpp"
#include "manifest/text.hpp"

namespace kiln::store {
namespace {

Trust judge_signers(const File& file, const KeyRing& keys) {
  for (const PublicKey& signer : file.signers())
    if (const KnownKey* known = keys.trusted(signer))
      return {true, fmt::format("signed by {} ({})", known->name, known->file.string())};
  if (file.signers().empty()) return {false, "nobody signed it"};
  for (const PublicKey& signer : file.signers())
    if (const KnownKey* known = keys.revoked(signer))
      return {false, fmt::format("the key {} that signed it is revoked ({})", known->name, known->file.string())};
  return {false, fmt::format("no trusted key signed it, but an unknown one (fingerprint {})",
                             fingerprint(file.signers().front()))};
}

// The path was resolved when the file was opened. If a folder on it became a link since, it leads to another file.
Trust judge_owner(const File& file) {
  std::error_code failure;
  if (std::filesystem::canonical(file.path(), failure) != file.path() || failure)
    return {false, "its path leads elsewhere than when it was opened"};
  return owner_trust(file.path());
}

}  // namespace

TrustPolicy parse_trust_policy(std::string_view word, std::string_view from) {
  if (word == "owner") return TrustPolicy::owner;
  if (word == "signed") return TrustPolicy::signed_files;
  throw Error(
      ErrorKind::bad_input,
      fmt::format("{} is '{}', expected owner (files of this user or root, and signed ones) or signed", from, word));
}

TrustPolicy trust_policy(std::optional<TrustPolicy> chosen) {
  if (chosen) return *chosen;
  const std::string word = manifest::environment("KILN_TRUST");
  return word.empty() ? TrustPolicy::owner : parse_trust_policy(word, "KILN_TRUST");
}

std::vector<std::string> ops_of_others(const manifest::Catalogue& ops) {
  std::vector<std::string> warnings;
  for (const manifest::Op& op : ops.read_so_far()) {
    if (op.folder.empty() || op.folder == "built-in") continue;
    std::error_code failure;
    const auto folder = std::filesystem::canonical(op.folder, failure);
    if (const auto objection = op_objection(folder); !failure && !objection.empty())
      warnings.push_back(fmt::format("the op {} runs code that another user may have written: {}",
                                     manifest::quote(op.name), objection));
  }
  return warnings;
}

Trust judge_code(const File& file, const CodeTrust& trust) {
  if (file.path().empty()) return {true, "it is in this process's memory"};
  Trust by_signature = judge_signers(file, trust.keys);
  if (by_signature.trusted) return by_signature;
  if (trust.policy == TrustPolicy::signed_files)
    return {false, fmt::format("the policy is signed, and {}", by_signature.why)};
  Trust by_owner = judge_owner(file);
  if (by_owner.trusted) return by_owner;
  return {false, fmt::format("{}; and {}", by_owner.why, by_signature.why)};
}

}  // namespace kiln::store
