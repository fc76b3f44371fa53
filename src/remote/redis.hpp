// A Redis or Valkey server as a store that machines share.
//
//   kiln:records:SPACE     a hash, a field for each key
//   kiln:spaces            a set of the spaces that were written
//   kiln:code:KEY          machine code
//   kiln:claim:SPACE|KEY   the holder's token, with the claim's term as its time to live
//
// A value replaces another one by a script that compares; where the user may run none, by WATCH and MULTI.
#pragma once

#include <memory>
#include <string_view>

#include "store/remote.hpp"

namespace kiln::remote {

/// Whether the address begins with redis://, rediss:// or unix://.
bool is_redis_address(std::string_view address) noexcept;

/// Connects to nothing. Throws Error(bad_input) for an address that can never work, and where this build of Kiln has no
/// client of Redis. The message quotes nothing of the address but paths of files. REQUIRES: is_redis_address(address).
std::unique_ptr<store::RemoteStore> open_redis(std::string_view address);

}  // namespace kiln::remote
