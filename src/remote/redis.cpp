#include "remote/redis.hpp"

#include "kiln/error.hpp"
#ifdef KILN_REDIS
#include "remote/redis/store.hpp"
#endif

namespace kiln::remote {

bool is_redis_address(std::string_view address) noexcept {
  return address.starts_with("redis://") || address.starts_with("rediss://") || address.starts_with("unix://");
}

#ifdef KILN_REDIS
std::unique_ptr<store::RemoteStore> open_redis(std::string_view address) {
  return std::make_unique<redis::Store>(redis::parse_address(address));
}
#else
std::unique_ptr<store::RemoteStore> open_redis(std::string_view) {
  throw Error(ErrorKind::bad_input,
              "the shared store is a Redis server, and this build of Kiln has no client of Redis; build Kiln where "
              "libhiredis-dev is installed, or share a folder");
}
#endif

}  // namespace kiln::remote
