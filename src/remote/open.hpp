// The back end that an address names, and the settings of a client, by options and environment.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/options.hpp"
#include "remote/client.hpp"
#include "store/remote.hpp"

namespace kiln::remote {

/// Returns the back end of redis://, rediss:// or unix://, else that of a folder's path. Connects to nothing. Throws
/// Error(bad_input) for an address that can never work; its message has no part of the address after the scheme, unless
/// that is a path.
std::unique_ptr<store::RemoteStore> open(std::string_view address);

/// Options::remote, else $KILN_REMOTE; empty: no store.
std::string address_of(const FileOptions& options);
/// Keys, policy and signing key. Adds what is wrong with keys to `warnings`. Throws as store::PrivateKey::read does,
/// and as store::trust_policy.
ClientSettings client_settings(const FileOptions& options, std::vector<std::string>& warnings);

}  // namespace kiln::remote
