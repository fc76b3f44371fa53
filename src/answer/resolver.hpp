// Maps a problem and a device to the configs that may serve it, in the order in which they are tried, each with its
// reason. Launches, coverage, explanations and deployments all use it. A capture whose bucket is not ready does not:
// loaded_fallbacks() of capture_launch.hpp serves it. Needs no device.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "answer/miss.hpp"
#include "answer/serving.hpp"
#include "kiln/engine.hpp"
#include "manifest/region.hpp"
#include "store/layers.hpp"

namespace kiln::answer {

/// A config that may serve sizes of a bucket.
struct Answer : manifest::Variant {
  Origin origin = Origin::default_;  // overlay, base, nearest, model or default_; never hot
  store::Role role = store::Role::fastest;
  manifest::Region region;  // the sizes that it is tried for
  /// The largest sizes that its plan is made for. Alignments and workspace bytes are computed there. It is the upper
  /// end of `region`, or of the regions of all answers of one config; for answers beyond a record's intervals, the
  /// bucket's edge.
  Problem at;
  double cost_ns = 0;      // as recorded; 0 for Origin::model and Origin::default_
  std::string timed_at;    // the sizes of cost_ns: "at the bucket's upper edge", "at m=96", "of the nearest bucket"
  std::string compiler;    // as recorded, or the library's version; empty for Origin::model and Origin::default_
  double distance = 0;     // Origin::nearest: NearRecord::distance
  bool stale = false;      // the sources, or the library's version, have changed since the tune
  bool is_beyond = false;  // a kernel of the record, at sizes that the record gives to other configs
  std::string why;         // one sentence
  [[nodiscard]] bool is_hit() const noexcept { return kiln::is_hit(origin); }
  /// The reason why it does not serve a problem of its bucket, as far as sizes tell; nothing where it does. Asks a
  /// library where a context is current.
  [[nodiscard]] std::optional<std::string> why_not(const manifest::Site& site, const Problem& problem) const;
};

/// An answer from a record's choice. The caller sets timed_at, distance, stale and why.
Answer answer_from(const Serving& serving, Origin origin);
/// An answer that no record gives: the model's choice, or a default.
Answer answer_without_record(Origin origin, manifest::Variant variant, const manifest::Region& region, std::string why);

/// The answers of a bucket. The first whose region holds the problem and that is legal there serves it. A call that is
/// refused at its launch goes to the next answer: by a library, for an address, or for a length in device memory.
struct Resolution {
  manifest::Bucket bucket;
  std::string key;                                    // bucket.key()
  std::optional<store::Found<store::Record>> record;  // the first layer's with a choice that can serve
  std::optional<Miss> miss;                           // why there is no record
  std::string unusable;               // why a record, or a choice of `record`, cannot serve; empty where all can
  std::int64_t unusable_choices = 0;  // choices of `record` that cannot serve
  std::vector<Answer> answers;        // empty for a miss without fallbacks
  std::string why_none;               // the reason of no answer
  [[nodiscard]] bool is_hit() const noexcept { return record.has_value(); }
  /// Whether the sources of a choice of the record have changed since its tune.
  [[nodiscard]] bool is_stale() const noexcept;

  /// Which answer serves a problem of the bucket.
  struct First {
    std::size_t index = 0;           // of the answer that serves; answers.size() where none does
    const Answer* serves = nullptr;  // null: none does
    struct PassedOver {
      const Answer* answer;
      std::string why_not;
    };
    std::vector<PassedOver> passed_over;  // the earlier answers that are tried for these sizes
  };
  using IsAmong = std::function<bool(std::size_t index)>;
  /// The first answer that serves, of those that `is_among` admits; absent: of all.
  [[nodiscard]] First first(const Problem& problem, const IsAmong& is_among = {}) const;
  /// The same, of those that need no library: for a launch with a length in device memory.
  [[nodiscard]] First first_own(const Problem& problem) const;
  /// The answers that serve some size of the bucket as long as no launch is refused.
  [[nodiscard]] std::vector<const Answer*> picked_by_size() const;
};

/// Returns the same answers for all problems of a bucket, in this order:
/// 1. for a hit, the record's fastest choices in the order of their sizes, those without a library, then its kernels
///    beyond their own sizes;
/// 2. for a miss with `fallbacks`, near_answers(); without, nothing at all;
/// 3. the defaults that are legal at some size of the bucket.
/// Of an op of a team only the record's choices serve. Where its ranks may launch unlike sizes, that for the largest
/// sizes serves all, and one without a library behind a library's. For a miss with `fallbacks` come the configs of
/// which the ranks may agree on one: near answers, then defaults, that are legal at both ends of the bucket. A miss is
/// no error.
Resolution resolve(const manifest::Site& site, const Problem& problem, store::Layers& layers, bool fallbacks = true);
/// The answers of a bucket whose record is at hand, or is known to be absent: those of its choices and the defaults.
Resolution resolve_with(const manifest::Bucket& bucket, const store::Record& record);

/// Why no implementation serves a problem of a team over a network, which has no symmetric memory; nothing where one
/// does, and for other links.
std::optional<std::string> why_network_serves_not(const manifest::Site& site, const Problem& problem);

/// Whether the sources of a config, or the version of its library, have changed since its tune.
bool is_stale(const manifest::Site& site, const manifest::Variant& variant, const Problem& at,
              const store::Choice& choice);
/// The digest of a config's present sources, in the form of store::Choice::source_digest.
std::string present_source(const manifest::Site& site, const manifest::Variant& variant, const Problem& at);

}  // namespace kiln::answer
