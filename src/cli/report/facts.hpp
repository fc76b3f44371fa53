// The facts of a report: one JSON document, which page.js draws. A number that is not finite is null.
//   document  {kiln, records_found, records_hidden, records_left_out, candidates_unread, sources, devices, ops, records, launches, misses, shared,
//              problems: {counted, unreadable}, missing: {found, most_launched: [{op, bucket, launches, sizes}]}}
//             and, of a workload, {workload: {files, buckets, missing, gaps: [{op, buckets, devices}]}}
//   source    {name, overlay, records, candidates, cubins, bytes} and, where the file cannot be used, {refused}; in the order of look-ups
//   device    {class, name, roof: null or {bytes_per_second, bytes_from, flops_per_second: {TYPE: rate}}}, in the order of classes
//   op        {name, summary, axes: [{name}]}
//   record    {op, bucket, regime, standing, cost_ns, baseline_ns, config, other_configs, kiln_version, tuned, device, source}
//             and, where a present op forms its key, {axes, lows, dtype, bytes_per_second, flops_per_second, times} and, past the limit, {times_left_out}
//             and, where its candidates were read, {trials: {costs_ns, verdicts: {NAME: count}, reason}}
//   time      {axes, cost_ns, baseline_ns} and, where its config is not the record's, {config}
//   launches, misses, shared  {total, most: [[NAME, count]]}; shared: look-ups in the shared store, by outcome
// records_hidden counts the records of later layers whose key an earlier layer holds; records_left_out and
// candidates_unread count records past the limits. `device` and `source` are indices, `tuned` is Unix seconds, `axes`
// and `lows` are the highest and lowest sizes of a bucket.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/output.hpp"
#include "cli/workload.hpp"
#include "manifest/catalogue.hpp"
#include "store/layers.hpp"

namespace kiln::cli::report {

struct Filter {
  std::string op, device_class;  // empty: all
  std::string present_device;    // the present device's class, or empty: launches can miss only its records
};

/// What a deployment will launch; no buckets: none was named.
struct Expected {
  std::vector<std::string> files;
  std::vector<OpBucket> buckets;
};

/// `names` holds the name of each layer, in order; a layer without a name goes by its path. No text names a home.
Json gather(const manifest::Catalogue& ops, store::Layers& layers, std::span<const std::string> names,
            const Filter& filter, const Expected& expected = {});

/// Replaces each home folder in the texts of a document by "~": this user's, and those of /home and /root.
void hide_homes(Json& document);

/// Returns the facts of one record without its source and device; with its trials where `record` holds candidates.
Json facts_of(const store::Record& record, const manifest::Catalogue& ops);

/// Returns the highest rates of a device, or null where Kiln does not know them.
Json roof_of(std::string_view device_class);

/// Returns a longer text's beginning and an ellipsis; never cuts inside a character.
std::string clipped(std::string_view text, std::size_t most_bytes = 160);

}  // namespace kiln::cli::report
