// The back end that an address names.
#pragma once

#include <memory>
#include <string_view>

#include "store/remote.hpp"

namespace kiln::remote {

/// Returns the back end of redis://, rediss:// or unix://, else that of a folder's path. Connects to nothing. Throws
/// Error(bad_input) for an address that can never work; its message has no part of the address after the scheme, unless
/// that is a path.
std::unique_ptr<store::RemoteStore> open(std::string_view address);

}  // namespace kiln::remote
