// What a Redis server's error replies mean to Kiln.
#pragma once

#include <string_view>

#include "store/remote.hpp"

namespace kiln::remote::redis {

/// Returns the failure that an error reply, such as "NOAUTH Authentication required.", is. Its message has none of the
/// server's text, which may name users and hosts.
store::RemoteFailure failure_of(std::string_view reply);

/// Whether the reply says that scripts are refused: unknown here, or not this user's.
bool refuses_scripts(std::string_view reply) noexcept;

}  // namespace kiln::remote::redis
