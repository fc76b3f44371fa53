#include "store/record.hpp"

#include "store/fields.hpp"

namespace kiln::store {

std::string_view to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::ok: return "ok";
    case Verdict::wrong_result: return "wrong_result";
    case Verdict::compile_failed: return "compile_failed";
    case Verdict::launch_failed: return "launch_failed";
    case Verdict::not_timed: return "not_timed";
  }
  return "unknown";
}

std::optional<Verdict> parse_verdict(std::string_view word) noexcept {
  using enum Verdict;
  for (const Verdict verdict : {ok, wrong_result, compile_failed, launch_failed, not_timed})
    if (to_string(verdict) == word) return verdict;
  return std::nullopt;
}

std::string_view to_string(Role role) noexcept { return role == Role::fastest ? "fastest" : "without_library"; }

std::optional<Role> parse_role(std::string_view word) noexcept {
  for (const Role role : {Role::fastest, Role::without_library})
    if (to_string(role) == word) return role;
  return std::nullopt;
}

const Choice& Record::at_edge() const noexcept {
  const Choice* last = &choices.front();
  for (const Choice& each : choices)
    if (each.role == Role::fastest) last = &each;
  return *last;
}

}  // namespace kiln::store
