#include "store/remote.hpp"

#include <fmt/format.h>

namespace kiln::store {

RemotePlace place_of(const Record& record) {
  return {fmt::format("1|{}@{}|{}|{}", record.op, record.revision, record.device_class, record.regime), record.key};
}

std::string_view to_string(RemoteFailure::Kind kind) noexcept {
  switch (kind) {
    case RemoteFailure::Kind::unreachable: return "unreachable";
    case RemoteFailure::Kind::slow: return "slow";
    case RemoteFailure::Kind::refused: return "refused";
    case RemoteFailure::Kind::full: return "full";
    case RemoteFailure::Kind::read_only: return "read-only";
    case RemoteFailure::Kind::unavailable: return "unavailable";
    case RemoteFailure::Kind::damaged: return "damaged";
  }
  return "unknown";
}

}  // namespace kiln::store
