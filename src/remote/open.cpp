#include "remote/open.hpp"

#include <fmt/format.h>

#include "kiln/error.hpp"
#include "remote/folder.hpp"
#include "remote/redis.hpp"

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

}  // namespace kiln::remote
