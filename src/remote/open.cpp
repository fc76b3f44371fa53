#include "remote/open.hpp"

#include <fmt/format.h>

#include "kiln/error.hpp"
#include "manifest/environment.hpp"
#include "remote/folder.hpp"
#include "remote/redis.hpp"
#include "store/custody.hpp"
#include "store/trust.hpp"

namespace kiln::remote {

std::unique_ptr<store::RemoteStore> open(std::string_view address) {
  constexpr std::string_view expected = "expected a folder's full path, redis://, rediss:// or unix://";
  if (address.starts_with('/') && address.find('\0') == std::string_view::npos)
    return std::make_unique<Folder>(std::filesystem::path(address));
  if (is_redis_address(address)) return open_redis(address);
  const std::size_t scheme = address.find("://");
  if (scheme == std::string_view::npos)
    throw Error(ErrorKind::bad_input,
                fmt::format("the address of the shared store has no scheme and is no full path; {}", expected));
  throw Error(ErrorKind::bad_input,
              fmt::format("the address of the shared store begins with '{}://', which is unknown; {}",
                          address.substr(0, scheme), expected));
}

std::string address_of(const FileOptions& options) {
  return options.remote ? *options.remote : manifest::environment("KILN_REMOTE");
}

ClientSettings client_settings(const FileOptions& options, std::vector<std::string>& warnings) {
  ClientSettings settings{.keys = store::KeyRing::read(store::key_folders(options.trusted_keys), warnings),
                          .only_signed = store::trust_policy(options.trust) == TrustPolicy::signed_files};
  const std::filesystem::path key = options.signing_key.empty()
                                        ? std::filesystem::path(manifest::environment("KILN_SIGNING_KEY"))
                                        : options.signing_key;
  if (key.empty()) return settings;
  settings.signer = store::PrivateKey::read(key);
  if (std::string objection = store::secret_objection(key); !objection.empty())
    warnings.push_back(std::move(objection));
  return settings;
}

}  // namespace kiln::remote
