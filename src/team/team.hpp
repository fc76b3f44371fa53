#pragma once
#include "team/member.hpp"
namespace kiln {
class Team {
 public:
  Team(const team::Membership& membership, const cuda::Context& context, std::int64_t bytes, std::chrono::milliseconds timeout)
      : member_(membership, context, bytes, timeout) {}
  [[nodiscard]] team::Member& member() noexcept { return member_; }
 private:
  team::Member member_;
};
}  // namespace kiln
