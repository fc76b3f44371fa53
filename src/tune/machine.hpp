// What a tune takes from the machine that it runs on, so that it can be recorded there and repeated elsewhere. All else
// of it is pure.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answer/cubins.hpp"
#include "jit/specialisation.hpp"
#include "store/record.hpp"
#include "tune/bench.hpp"
#include "tune/request.hpp"

namespace kiln::tune {

/// What vendors' libraries propose and take. This class asks those of this process.
class Libraries {
 public:
  virtual ~Libraries() = default;
  /// As jit::library_candidates(), at the sizes `at`.
  [[nodiscard]] virtual std::vector<manifest::Config> candidates(const manifest::Site& site,
                                                                 const manifest::Implementation& implementation,
                                                                 const Problem& at, std::size_t at_most);
  /// As jit::why_library_refuses(), at the sizes `at`.
  [[nodiscard]] virtual std::optional<std::string> why_refused(const manifest::Site& site,
                                                               const manifest::Variant& variant, const Problem& at);
};

class Machine {
 public:
  virtual ~Machine() = default;
  /// At most so many records near the request's bucket, with their candidates, nearest first.
  [[nodiscard]] virtual std::vector<store::Record> near_records(std::size_t at_most) = 0;
  [[nodiscard]] virtual Libraries& libraries() = 0;
  /// Compiles that run side by side.
  [[nodiscard]] virtual std::size_t compiles_at_once() = 0;
  virtual void prefetch(const jit::Specialisation& specialisation) = 0;
  /// As Cubins::get().
  [[nodiscard]] virtual answer::KeyedCubin compiled(const jit::Specialisation& specialisation) = 0;
  /// Returns a bench of the request's bucket. May be called in another thread.
  [[nodiscard]] virtual std::unique_ptr<Bench> bench() = 0;
  /// The tune passed its time limit: the clock has a part in what it chooses.
  virtual void note_time_limit() {}
};

/// This machine. The request and the cubins must outlive it.
std::unique_ptr<Machine> this_machine(const TuneRequest& request, answer::Cubins& cubins);

}  // namespace kiln::tune
