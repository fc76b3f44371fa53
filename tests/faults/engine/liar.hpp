// The lying worker, by a path of the test's own.
#pragma once

#include "faults/engine/fixture.hpp"
#include "faults/engine/liar/orders.hpp"

namespace kiln::faults {

class Liar {
 public:
  Liar() : program_(folder_ / "liar") { fs::create_symlink(LIAR, program_); }
  void lie_about(Asked asked, int lie) const { write_order(program_, {Order::What::lie, asked, lie}); }
  /// The next `times` processes kill themselves with SIGKILL in place of this answer.
  void die_at(Asked asked, int times) const { write_order(program_, {Order::What::die, asked, times}); }
  void be_honest() const { write_order(program_, {}); }
  [[nodiscard]] const fs::path& program() const noexcept { return program_; }

 private:
  TemporaryFolder folder_;
  fs::path program_;
};

inline int count_of_lies(Asked asked) { return static_cast<int>(lies_about(asked).size()); }

}  // namespace kiln::faults
