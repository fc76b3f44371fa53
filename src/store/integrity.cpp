#include "store/integrity.hpp"

#include <fmt/core.h>
#include <utf8.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <span>
#include <string_view>
#include <vector>

#include "kiln/error.hpp"
#include "store/compression.hpp"
#include "store/fields.hpp"
#include "store/json.hpp"
#include "store/limits.hpp"
#include "store/seal.hpp"

namespace kiln::store {
namespace {

struct DigestVisitor {
  manifest::Hasher& hasher;
  void operator()(const char*, const std::string& text) const { hasher.field(std::string_view(text)); }
  void operator()(const char*, Verdict verdict) const { hasher.field(to_string(verdict)); }
  void operator()(const char*, Role role) const { hasher.field(to_string(role)); }
  void operator()(const char*, std::integral auto number) const { hasher.field(static_cast<std::int64_t>(number)); }
  // SQLite stores -0.0 as the integer 0; adding 0.0 turns -0.0 into 0.0.
  void operator()(const char*, double number) const { hasher.field(std::bit_cast<std::int64_t>(number + 0.0)); }
};

struct FlawVisitor {
  std::string& flaw;
  void operator()(const char* name, const std::string& text) const {
    if (!utf8::is_valid(text)) flaw = std::string(name) + " is not UTF-8";
  }
  void operator()(const char*, Verdict) const {}
  void operator()(const char*, Role) const {}
  void operator()(const char*, bool) const {}
  void operator()(const char*, std::integral auto) const {}
  void operator()(const char* name, double number) const {
    if (!std::isfinite(number) || number < 0)
      flaw = std::string(name) + " is not a finite number of nanoseconds, 0 or more";
  }
};

template <class Timed>
std::string flaw_of_times(const Timed& timed) {
  if (timed.samples < 0) return "samples is negative";
  if (timed.low_ns > timed.high_ns) return "low_ns is greater than high_ns";
  return timed.cost_ns > 0 && timed.samples == 0 ? "samples is 0, and cost_ns is not" : "";
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t end = 0; !text.empty(); text.remove_prefix(std::min(end + 1, text.size()))) {
    end = std::min(text.find(' '), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
  }
  return words;
}

/// Whether the key of a record agrees with its fields. manifest::Bucket::key() writes "OP@REVISION | rows=pow2:512 |
/// dtype=bf16 | DEVICE_CLASS | REGIME" and manifest::to_string() the bucket, "rows=512 dtype=bf16". Nothing asks for a
/// key of another form.
bool agrees_with_key(const Record& record) {
  constexpr std::ptrdiff_t bars = 4;
  std::string_view key = record.key;
  if (std::ranges::count(words_of(key), "|") != bars) return true;
  const std::string begin = fmt::format("{}@{} |", record.op, record.revision);
  const std::string end = fmt::format("| {} | {}", record.device_class, record.regime);
  if (!key.starts_with(begin) || !key.ends_with(end) || key.size() < begin.size() + end.size()) return false;
  key = key.substr(begin.size(), key.size() - begin.size() - end.size());
  std::string bucket;
  bool is_axis = true;
  for (const std::string_view word : words_of(key)) {
    if (word == "|") {
      is_axis = false;
      continue;
    }
    const std::size_t equals = word.find('='), colon = word.rfind(':');
    constexpr std::size_t none = std::string_view::npos;
    const bool has_policy = is_axis && equals != none && colon != none && colon > equals;
    bucket += bucket.empty() ? "" : " ";
    bucket += has_policy ? word.substr(0, equals + 1) : word;
    if (has_policy) bucket += word.substr(colon + 1);
  }
  return bucket == record.bucket;
}

}  // namespace

PackedCubin pack(const CubinRow& cubin) {
  PackedCubin packed{cubin.key,   cubin.op,   cubin.source_digest,
                     cubin.label, cubin.arch, cubin.compiler,
                     {},          {},         static_cast<std::int64_t>(cubin.image.size()),
                     {}};
  for (const auto* names : {&cubin.name_expressions, &cubin.lowered_names})
    for (const std::string& name : *names)
      if (!utf8::is_valid(name))
        throw Error(ErrorKind::bad_input,
                    "a cubin's function names must be UTF-8; one of '" + cubin.label + "' is not");
  packed.name_expressions = to_json(cubin.name_expressions);
  packed.lowered_names = to_json(cubin.lowered_names);
  packed.image = compress(cubin.image);
  return packed;
}

std::optional<CubinRow> unpack(const PackedCubin& packed) try {
  auto image = decompress(packed.image, packed.image_bytes);
  if (!image) return std::nullopt;
  return CubinRow{packed.key,
                  packed.op,
                  packed.source_digest,
                  packed.label,
                  packed.arch,
                  packed.compiler,
                  words_from_json(packed.name_expressions),
                  words_from_json(packed.lowered_names),
                  std::move(*image)};
} catch (const Error&) {
  return std::nullopt;
}

manifest::Digest digest_of(const Record& record) {
  manifest::Hasher hasher;
  hasher.field(std::string_view("record"));
  each_record_field(record, DigestVisitor{hasher});
  hasher.field(static_cast<std::int64_t>(record.choices.size()));
  for (const Choice& choice : record.choices) each_choice_field(choice, DigestVisitor{hasher});
  return hasher.finish();
}

manifest::Digest digest_of(std::string_view record_key, std::int64_t position, const TriedCandidate& candidate) {
  manifest::Hasher hasher;
  hasher.field(std::string_view("candidate")).field(record_key).field(position);
  each_candidate_field(candidate, DigestVisitor{hasher});
  return hasher.finish();
}

manifest::Digest digest_of(const PackedCubin& packed) {
  manifest::Hasher hasher;
  hasher.field(std::string_view("cubin")).field(std::span<const std::byte>(packed.key));
  each_cubin_field(packed, DigestVisitor{hasher});
  hasher.field(std::span<const std::byte>(packed.image));
  return hasher.finish();
}

std::string flaw_of(const Choice& choice) {
  std::string flaw;
  each_choice_field(choice, FlawVisitor{flaw});
  return flaw.empty() ? flaw_of_times(choice) : flaw;
}

std::string flaw_of(const Record& record) {
  std::string flaw;
  each_record_field(record, FlawVisitor{flaw});
  if (record.key.empty()) flaw = "key is empty";
  if (!agrees_with_key(record)) flaw = "key is not that of its op, revision, bucket, device class and regime";
  if (record.choices.size() > max_choices) return fmt::format("it has more than {} choices", max_choices);
  if (std::ranges::find(record.choices, Role::fastest, &Choice::role) == record.choices.end())
    return "no choice is the fastest";
  for (const Choice& choice : record.choices)
    if (const auto of_choice = flaw_of(choice); !of_choice.empty()) flaw = "a choice's " + of_choice;
  return flaw;
}

std::string flaw_of(const TriedCandidate& candidate) {
  std::string flaw;
  each_candidate_field(candidate, FlawVisitor{flaw});
  return flaw.empty() ? flaw_of_times(candidate) : flaw;
}

std::string flaw_of(const PackedCubin& packed) {
  std::string flaw;
  each_cubin_field(packed, FlawVisitor{flaw});
  if (std::max(packed.name_expressions.size(), packed.lowered_names.size()) > max_names_bytes)
    flaw = "its function names are past the limit";
  if (packed.image_bytes < 0 || packed.image_bytes > max_image_bytes) flaw = "image_bytes is past the limit";
  return flaw;
}

void set_aside(Connection& connection, const std::vector<Flaw>& flaws) {
  for (const Flaw& flaw : flaws) {
    if (!flaw.remove(connection)) continue;
    if (is_sealed(flaw.source)) remove_manifest(connection);
    connection.query("INSERT INTO quarantine (source, key, reason) VALUES (?, ?, ?)")
        .bind(std::string_view(flaw.source))
        .bind(std::string_view(flaw.key))
        .bind(std::string_view(flaw.reason))
        .run();
  }
  connection.execute("DELETE FROM quarantine WHERE id <= (SELECT max(id) FROM quarantine) - 1000");
}

}  // namespace kiln::store
