// Maps a problem and a device to the configs that may serve it, in the order in which they are tried, each with its reason. Launches,
// coverage, explanations and deployments all use it. A capture whose bucket is not ready does not: loaded_fallbacks() of
// capture_launch.hpp serves it. Needs no device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "answer/cubins.hpp"
#include "answer/miss.hpp"
#include "answer/serving.hpp"
#include "kiln/engine.hpp"
#include "manifest/key.hpp"
#include "manifest/region.hpp"
#include "store/layers.hpp"

namespace kiln::answer {

/// A config that may serve sizes of a bucket.
struct Answer {
  Origin origin = Origin::default_;  // overlay, base, nearest, model or default_; never hot
  store::Role role = store::Role::fastest;
  manifest::Region region;  // the sizes that it is tried for
  /// The largest sizes that its plan is made for. Alignments and workspace bytes are computed there. It is the upper end of `region`, or of the
  /// regions of all answers of one config; for answers beyond a record's intervals, the bucket's edge.
  Problem at;
  const manifest::Implementation* implementation = nullptr;  // never null
  manifest::Config config;
  double cost_ns = 0;      // as recorded; 0 for Origin::model and Origin::default_
  std::string timed_at;    // the sizes of cost_ns: "at the bucket's upper edge", "at m=96", "of the nearest bucket"
  std::string compiler;    // as recorded, or the library's version; empty for Origin::model and Origin::default_
  double distance = 0;     // Origin::nearest: NearRecord::distance
  bool stale = false;      // the sources, or the library's version, have changed since the tune
  bool is_beyond = false;  // a kernel of the record, at sizes that the record gives to other configs
  std::string why;         // one sentence
  [[nodiscard]] bool is_hit() const noexcept { return kiln::is_hit(origin); }
};

/// An answer from a record's choice. The caller sets timed_at, distance, stale and why.
Answer answer_from(const Serving& serving, Origin origin);
/// An answer that no record gives: the model's choice, or a default.
Answer answer_without_record(Origin origin, const manifest::Implementation& implementation, manifest::Config config,
                             const manifest::Region& region, std::string why);

/// "vectorized threads=256 vector=8"
std::string name_of(const Answer& answer);

/// The answers of a bucket. The first whose region holds the problem and that is legal there serves it. A call that is refused at its launch
/// goes to the next answer: by a library, for an address, or for a length in device memory.
struct Resolution {
  Problem bucket;                                     // upper edges
  std::string key;                                    // manifest::record_key
  std::optional<store::Found<store::Record>> record;  // the first layer's with a choice that can serve
  std::optional<Miss> miss;                           // why there is no record
  std::string unusable;               // why a record, or a choice of `record`, cannot serve; empty where all can
  std::int64_t unusable_choices = 0;  // choices of `record` that cannot serve
  std::vector<Answer> answers;        // empty for a miss without fallbacks
  std::string why_none;               // the reason of no answer
  [[nodiscard]] bool is_hit() const noexcept { return record.has_value(); }
  /// Whether the sources of a choice of the record have changed since its tune.
  [[nodiscard]] bool is_stale() const noexcept;
};

/// Returns the same answers for all problems of a bucket, in this order:
/// 1. for a hit, the record's fastest choices in the order of their sizes, those without a library, then its kernels beyond their own sizes;
/// 2. for a miss with `fallbacks`, near_answers(); without, nothing at all;
/// 3. the defaults that are legal at some size of the bucket.
/// Of an op of a team only the record's fastest choice serves, and one without a library behind a library's. A miss is no error.
Resolution resolve(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device, Regime regime,
                   store::Layers& layers, bool fallbacks = true);

/// Why no implementation serves a problem of a team over a network, which has no symmetric memory; nothing where one does, and for other links.
std::optional<std::string> why_network_serves_not(const manifest::Op& op, const Problem& problem,
                                                  const manifest::DeviceFacts& device);

/// The reason why an answer does not serve a problem of its bucket, as far as sizes tell; nothing where it does. Asks a library where a context
/// is current.
std::optional<std::string> why_not(const manifest::Op& op, const Answer& answer, const Problem& problem,
                                   const manifest::DeviceFacts& device);
/// The first answer that serves; null when none does.
const Answer* serving(const manifest::Op& op, const Resolution& resolution, const Problem& problem,
                      const manifest::DeviceFacts& device);
/// serving() for a launch with a length in device memory, which needs no library.
const Answer* serving_without_library(const manifest::Op& op, const Resolution& resolution, const Problem& problem,
                                      const manifest::DeviceFacts& device);

/// The answers that serve some size of the bucket as long as no launch is refused.
std::vector<const Answer*> picked_by_size(const manifest::Op& op, const Resolution& resolution);

/// Without NVRTC, removes fallbacks whose machine code no file holds, except defaults, which deployments include.
void leave_servable(Resolution& resolution, const manifest::Op& op, const manifest::DeviceFacts& device,
                    const std::string& arch, Cubins& cubins);

/// The specialisations that launches of the bucket may need, each once, in the order of the answers. A library's answer has none.
std::vector<jit::Specialisation> specialisations_of(const manifest::Op& op, const Resolution& resolution,
                                                    const manifest::DeviceFacts& device, const std::string& arch);
/// Whether a file has the answer's machine code, by whatever compiler. True for a library's answer.
bool has_code(const manifest::Op& op, const Answer& answer, const manifest::DeviceFacts& device,
              const std::string& arch, Cubins& cubins);

/// Whether the sources of a config, or the version of its library, have changed since its tune.
bool is_stale(const manifest::Op& op, const manifest::Implementation& implementation, const manifest::Config& config,
              const Problem& at, const manifest::DeviceFacts& device, const store::Choice& choice);
/// The digest of a config's present sources, in the form of store::Choice::source_digest.
std::string present_source(const manifest::Op& op, const manifest::Implementation& implementation, const Problem& at,
                           const manifest::DeviceFacts& device, std::span<const std::int64_t> config);

}  // namespace kiln::answer
