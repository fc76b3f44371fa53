// The interface by which a bucket's candidates are verified and timed, in this process or in a worker.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "answer/cubins.hpp"
#include "cuda/device.hpp"
#include "jit/specialisation.hpp"
#include "kiln/options.hpp"
#include "manifest/variant.hpp"
#include "store/record.hpp"
#include "team/binding.hpp"
#include "team/member.hpp"
#include "tune/measure.hpp"

namespace kiln::tune {

/// A candidate to verify and time.
struct Trial {
  const manifest::Variant& variant;
  const jit::Cubin& cubin;
  const Problem& at;  // the largest size at which it is legal; its executable is made for it
};

/// The verdict on a candidate. Only one with Verdict::ok may be sampled.
struct Admission {
  store::Verdict verdict = store::Verdict::not_timed;
  std::string reason;
  int registers = 0;
  std::int64_t spill_bytes = 0;
};

/// Device times of a candidate's runs, or the reason why a verified candidate failed. A bench gives what the driver
/// gave, which may be NaN, infinite or negative: keep_times() drops that.
struct Samples {
  std::vector<double> ns;
  std::string failure;
  std::int64_t dropped = 0;  // by keep_times()
};
/// Whether this is a time: finite, and not negative.
bool is_time(double ns) noexcept;
void keep_times(Samples& samples);
/// Why a candidate without a time is rejected.
std::string no_times_text(std::int64_t dropped);

class Bench {
 public:
  virtual ~Bench() = default;
  /// Sets the sizes that Point::size indexes. None is larger than the bucket.
  virtual void set_sizes(std::vector<Problem> sizes) = 0;
  /// Loads a candidate under a number that the caller chooses, and verifies it at both ends of the bucket. Throws
  /// Error(out_of_memory), or Error(driver_failed) when the candidate broke the context that it shares with the caller.
  virtual Admission admit(std::size_t candidate, const Trial& trial) = 0;
  /// Takes `rounds` samples of each point, in turns. A point that is not legal gets neither samples nor a failure.
  /// Precondition: the candidates are admitted. Throws as admit() does.
  virtual std::vector<Samples> sample(std::span<const Point> points, std::int64_t rounds) = 0;
  /// Samples chains in place of single launches: a sample is the time of a chain of equal launches over their number.
  virtual std::vector<Samples> sample_chains(std::span<const Point> points, std::int64_t rounds) = 0;
  /// Runs a point as often, unmeasured.
  virtual void warm_up(Point point, std::int64_t runs) { (void)sample({&point, 1}, runs); }
  /// Whether a device runs the candidates, which rests between batches.
  [[nodiscard]] virtual bool needs_rest() const { return true; }
  /// Unloads a candidate.
  virtual void drop(std::size_t candidate) = 0;
  /// The host time in nanoseconds that filling tensors and running the reference took.
  [[nodiscard]] virtual double prepared_ns() const = 0;
};

struct BenchSettings {
  manifest::Bucket bucket;
  const cuda::DeviceInfo& device;  // of which bucket.device are facts
  std::string arch;
  const team::TeamBinding* team = nullptr;  // of a team op, for the bench's life
  /// Decides the values of inputs. Absent: the clock does. Equal on all ranks of a team.
  std::optional<std::uint64_t> seed = std::nullopt;
  /// Of that team, where other ranks take part: a barrier is before each timed run, and a fault is the candidate's
  /// failure.
  team::Member* member = nullptr;
};

/// Returns a bench in the current context. Allocates and fills the tensors, and runs the reference. Throws as
/// VerificationCase does.
std::unique_ptr<Bench> local_bench(const BenchSettings& settings, answer::Cubins& cubins);

}  // namespace kiln::tune
