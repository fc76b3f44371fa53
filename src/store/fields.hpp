// The stored fields of each row, in the order of cache/schema.sql. Binding, reading, digests and JSON all visit these
// lists, so no stored field can be missing from its row's digest.
#pragma once

#include <optional>
#include <string_view>

#include "store/record.hpp"

namespace kiln::store {

std::optional<Verdict> parse_verdict(std::string_view word) noexcept;
std::optional<Role> parse_role(std::string_view word) noexcept;

template <class R, class Visitor>
void each_answer_field(R& record, Visitor&& visit) {
  visit("key", record.key);
  visit("op", record.op);
  visit("revision", record.revision);
  visit("device_class", record.device_class);
  visit("regime", record.regime);
  visit("bucket", record.bucket);
  visit("baseline_ns", record.baseline_ns);
}

template <class C, class Visitor>
void each_choice_field(C& choice, Visitor&& visit) {
  visit("role", choice.role);
  visit("sizes", choice.sizes);
  visit("implementation", choice.implementation);
  visit("config", choice.config);
  visit("cost_ns", choice.cost_ns);
  visit("low_ns", choice.low_ns);
  visit("high_ns", choice.high_ns);
  visit("samples", choice.samples);
  visit("source_digest", choice.source_digest);
  visit("compiler", choice.compiler);
}

template <class P, class Visitor>
void each_provenance_field(P& provenance, Visitor&& visit) {
  visit("kiln_version", provenance.kiln_version);
  visit("device_name", provenance.device_name);
  visit("driver_version", provenance.driver_version);
  visit("strategy", provenance.strategy);
  visit("unix_seconds", provenance.unix_seconds);
}

/// The fields of a record's row. Choices and candidates have their own rows.
template <class R, class Visitor>
void each_record_field(R& record, Visitor&& visit) {
  each_answer_field(record, visit);
  each_provenance_field(record.provenance, visit);
}

template <class C, class Visitor>
void each_candidate_field(C& candidate, Visitor&& visit) {
  visit("implementation", candidate.implementation);
  visit("config", candidate.config);
  visit("sizes", candidate.sizes);
  visit("verdict", candidate.verdict);
  visit("reason", candidate.reason);
  visit("cost_ns", candidate.cost_ns);
  visit("low_ns", candidate.low_ns);
  visit("high_ns", candidate.high_ns);
  visit("samples", candidate.samples);
  visit("registers", candidate.registers);
  visit("spill_bytes", candidate.spill_bytes);
  visit("baseline", candidate.baseline);
}

/// All fields but the key and the image.
template <class C, class Visitor>
void each_cubin_field(C& cubin, Visitor&& visit) {
  visit("op", cubin.op);
  visit("source_digest", cubin.source_digest);
  visit("label", cubin.label);
  visit("arch", cubin.arch);
  visit("compiler", cubin.compiler);
  visit("name_expressions", cubin.name_expressions);
  visit("lowered_names", cubin.lowered_names);
  visit("image_bytes", cubin.image_bytes);
}

}  // namespace kiln::store
