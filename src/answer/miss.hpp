// Why a look-up found no record or no machine code, as Stats counts it.
#pragma once

#include <cstdint>
#include <string_view>

#include "store/file.hpp"

namespace kiln::answer {

/// The reasons of kiln::Misses, in its order.
enum class Miss : std::uint8_t { absent, unusable, damaged, unreadable, no_cubin, refused_cubin };
inline constexpr std::size_t miss_kinds = 6;
std::string_view to_string(Miss miss) noexcept;
/// The reason of a look-up that found nothing and met `met` on its way; `otherwise` where it met no failure.
Miss reason_of(const store::Counters& met, Miss otherwise) noexcept;

}  // namespace kiln::answer
