// What tests must know of the sanitizer that they are built with.
#pragma once

namespace kiln::faults {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool address_sanitizer = true;
#elif defined(__has_feature)
constexpr bool address_sanitizer = __has_feature(address_sanitizer);
#else
constexpr bool address_sanitizer = false;
#endif

#if defined(__SANITIZE_THREAD__)
constexpr bool thread_sanitizer = true;
#elif defined(__has_feature)
constexpr bool thread_sanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool thread_sanitizer = false;
#endif

/// Of tests that only look at `kiln` from outside, by some hundred processes.
constexpr const char* slow_under_sanitizer = "hundreds of processes take minutes under AddressSanitizer";

}  // namespace kiln::faults
