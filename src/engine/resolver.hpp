// Which config serves a problem, and what serves where that one cannot: problem and device in, answers in the order in which they are
// tried out, each with its reason. Launch, capture, prepare, coverage, explain and deployment take from it. Needs no device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/counters.hpp"
#include "kiln/engine.hpp"
#include "manifest/key.hpp"
#include "manifest/region.hpp"
#include "store/layers.hpp"
#include "tune/cubins.hpp"
#include "tune/serving.hpp"

namespace kiln::engine {

/// A config that may serve sizes of a bucket.
struct Answer {
  Origin origin = Origin::default_;  // overlay, base, nearest, model or default_; never hot
  store::Role role = store::Role::fastest;
  manifest::Region region;  // the sizes that it is tried for
  Problem at;               // what it is made ready for: the largest sizes that its config serves
  const manifest::Implementation* implementation = nullptr;  // never null
  manifest::Config config;
  double cost_ns = 0;    // as recorded; 0 for a default and for the model's choice
  std::string timed_at;  // what that is the time of: "at the bucket's upper edge", "at m=96", "of the nearest bucket"
  std::string
      compiler;  // that the record names, or the library's version; empty for a default and for the model's choice
  double distance = 0;     // of a nearest record: tune::NearRecord::distance
  bool stale = false;      // tuned from other sources than the present ones, or by another version of the library
  bool is_beyond = false;  // of a record's own kernel, at sizes that the record gives to others
  std::string why;         // one sentence
  [[nodiscard]] bool is_hit() const noexcept { return origin == Origin::overlay || origin == Origin::base; }
};

/// What a record's choice says of itself; where its time was taken, how far it is from and why it serves are the caller's to add.
Answer answer_from(const tune::Serving& serving, Origin origin);

/// "vectorized threads=256 vector=8"
std::string name_of(const Answer& answer);

/// The first answer whose region holds the problem and that is legal there serves it. What is refused only when it is launched goes to the
/// next one: by a library, by an address, by a length in device memory, which no library takes.
struct Resolution {
  Problem bucket;                                     // upper edges
  std::string key;                                    // manifest::record_key
  std::optional<store::Found<store::Record>> record;  // of the first layer whose record has a choice that can serve
  std::optional<Miss> miss;                           // why there is none
  std::string unusable;               // why a record, or a choice of `record`, cannot serve; empty when all can
  std::int64_t unusable_choices = 0;  // of `record`
  std::vector<Answer> answers;        // of a miss without stand-ins none
  std::string why_none;               // of no answer
  [[nodiscard]] bool is_hit() const noexcept { return record.has_value(); }
  /// Whether a choice of the record was tuned from other sources.
  [[nodiscard]] bool is_stale() const noexcept;
};

/// For a hit the record's choices: the fastest in the order of their sizes, those without a library, then those of its own kernels beyond
/// their own sizes. On a miss with `stand_ins` near records' choices and the model's, in the order of near_answers. Then the defaults
/// that some size of the bucket may take. Throws nothing for a miss. The same for all problems of a bucket.
Resolution resolve(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device, Regime regime,
                   store::Layers& layers, bool stand_ins = true);

/// Why an answer does not serve a problem of its bucket, as far as sizes tell; nothing when it does. Where a context is current, a library
/// is asked.
std::optional<std::string> why_not(const manifest::Op& op, const Answer& answer, const Problem& problem,
                                   const manifest::DeviceFacts& device);
/// The first answer that serves, from the given one on; null when none does.
const Answer* serving(const manifest::Op& op, const Resolution& resolution, const Problem& problem,
                      const manifest::DeviceFacts& device, std::size_t from = 0);
/// The same for a length in device memory: of those that need no library.
const Answer* serving_without_library(const manifest::Op& op, const Resolution& resolution, const Problem& problem,
                                      const manifest::DeviceFacts& device);

/// The answers that sizes alone pick, as long as nothing is refused.
std::vector<const Answer*> picked_by_size(const manifest::Op& op, const Resolution& resolution);

/// Leaves out stand-ins whose machine code no file holds where there is no NVRTC to make it: deployments carry the defaults.
void leave_servable(Resolution& resolution, const manifest::Op& op, const manifest::DeviceFacts& device,
                    const std::string& arch, tune::Cubins& cubins);

/// The machine code that launches of the bucket may ask for, each once, in the order of the answers; a library has none.
std::vector<jit::Specialisation> specialisations_of(const manifest::Op& op, const Resolution& resolution,
                                                    const manifest::DeviceFacts& device, const std::string& arch);
/// Whether a file has the machine code of an answer, under the compiler that its record names or any that serves here. True for a
/// library's.
bool has_code(const manifest::Op& op, const Answer& answer, const manifest::DeviceFacts& device,
              const std::string& arch, tune::Cubins& cubins);

/// How much longer than a tuned config an answer is expected to take: 1 for a hit; of a stand-in what others like it took, else the
/// model's word, else what such stand-ins took over many buckets.
double expected_slowdown(const manifest::Op& op, const Answer& answer, const Problem& bucket,
                         const manifest::DeviceFacts& device, Regime regime, store::Layers& layers);

/// Whether a config of `implementation` was tuned from other sources than it would be built from now, or by another version of the
/// library that computes it.
bool is_stale(const manifest::Op& op, const manifest::Implementation& implementation, const manifest::Config& config,
              const Problem& at, const manifest::DeviceFacts& device, const store::Choice& choice);
/// The sources that a config would be built from now, as store::Choice::source_digest has it.
std::string present_source(const manifest::Op& op, const manifest::Implementation& implementation, const Problem& at,
                           const manifest::DeviceFacts& device, std::span<const std::int64_t> config);

using manifest::parse_bucket;

}  // namespace kiln::engine
