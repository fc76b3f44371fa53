// What another user than root may do.
#pragma once

#include <grp.h>

#include "faults/skip.hpp"
#include "store/support.hpp"

namespace kiln::store {

/// Runs `work` as the user nobody in a child. Skipped, and true, where this user may not change to another.
template <class Work>
bool as_nobody(Work&& work) {
  if (geteuid() != 0) {
    faults::skip("only root can become another user");
    return true;
  }
  constexpr uid_t nobody = 65534;
  return exit_status(in_child(
             [&] { return setgroups(0, nullptr) == 0 && setgid(nobody) == 0 && setuid(nobody) == 0 && work(); })) == 0;
}

}  // namespace kiln::store
