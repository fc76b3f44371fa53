#include "answer/miss.hpp"

namespace kiln::answer {

std::string_view to_string(Miss miss) noexcept {
  switch (miss) {
    case Miss::absent: return "absent";
    case Miss::unusable: return "unusable";
    case Miss::damaged: return "damaged";
    case Miss::unreadable: return "unreadable";
    case Miss::no_cubin: return "no_cubin";
    case Miss::refused_cubin: return "refused_cubin";
  }
  return "unknown";
}

Miss reason_of(const store::Counters& met, Miss otherwise) noexcept {
  return met.quarantined > 0 ? Miss::damaged : met.read_failures > 0 ? Miss::unreadable : otherwise;
}

}  // namespace kiln::answer
