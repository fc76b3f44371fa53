// Rows as a tune of rms_norm on an H200 leaves them, without one.
#pragma once

#include <string>
#include <vector>

#include "answer/cubins.hpp"
#include "answer/machine_code.hpp"
#include "answer/serving.hpp"
#include "cli/problem_set.hpp"
#include "jit/executable.hpp"
#include "manifest/key.hpp"
#include "manifest/region.hpp"
#include "store/file.hpp"
#include "tune/verification_code.hpp"

namespace kiln::testing {

inline constexpr const char* h200 = "sm_90/mp132/l2_62914560/smem_232448/bus_6016";
inline constexpr const char* h100 = "sm_90/mp114/l2_52428800/smem_232448/bus_5120";

struct TunedRows {
  store::Record record;
  std::vector<store::CubinRow> cubins;  // of the configs, the defaults, the reference and Kiln's own kernels
};

inline std::vector<store::CubinRow> cubins_for(const std::vector<jit::Specialisation>& specialisations) {
  std::vector<store::CubinRow> rows;
  for (const jit::Specialisation& each : specialisations) {
    answer::KeyedCubin cubin;
    cubin.compiler = "nvrtc 13.0";
    cubin.key = jit::cubin_key(each, cubin.compiler);
    cubin.cubin.image.assign(500, static_cast<std::byte>(rows.size()));
    cubin.cubin.lowered_names = each.name_expressions;
    rows.push_back(answer::to_row(each, cubin));
  }
  return rows;
}

inline const manifest::Op& rms_norm() {
  static const manifest::Catalogue ops{std::span<const std::filesystem::path>()};
  return cli::find_op(ops, "rms_norm");
}

/// The default has won, for all of the bucket.
inline TunedRows tuned(const std::vector<std::string>& words, const char* device_class = h200, double cost_ns = 1000) {
  const manifest::Op& op = rms_norm();
  const Problem bucket = manifest::bucket_of(op, cli::parse_problem(op, words));
  const manifest::DeviceFacts device = manifest::DeviceFacts::from_device_class(device_class).value();
  const answer::Usable winner = answer::default_for({op, device}, bucket);
  const auto frame = winner.frame({op, device}, bucket);
  TunedRows rows;
  store::Record& record = rows.record;
  record.key = manifest::Bucket({op, device, Regime::cold_l2}, bucket).key();
  record.op = op.name;
  record.revision = op.revision;
  record.device_class = device_class;
  record.regime = "cold";
  record.bucket = manifest::to_string(op, bucket);
  record.baseline_ns = cost_ns;
  record.provenance = {"0.1.0", "NVIDIA H200", 13000, "exhaustive", 1790000000};
  store::Choice& choice = record.choices.emplace_back();
  choice.sizes = manifest::to_string(op, manifest::whole_of(op, bucket));
  choice.implementation = winner.implementation->name;
  choice.config = manifest::to_string(*winner.implementation, winner.config);
  choice.cost_ns = cost_ns;
  choice.low_ns = cost_ns * 0.99;
  choice.high_ns = cost_ns * 1.01;
  choice.samples = 40;
  choice.source_digest = manifest::to_hex(jit::source_digest(jit::specialise(op, *winner.implementation, frame, {})));
  choice.compiler = "nvrtc 13.0";
  rows.cubins = cubins_for(answer::code_needed(answer::resolve_with({{op, device}, bucket}, record), "sm_90a"));
  for (store::CubinRow& each : cubins_for(tune::verification({{op, device}, bucket}, "sm_90a")))
    rows.cubins.push_back(std::move(each));
  return rows;
}

/// The source digest that earlier versions of Kiln stored.
inline std::string digest_over_text(const jit::Specialisation& code) {
  manifest::Hasher hasher;
  const auto closure = jit::include_closure(code);
  hasher.field("source").field(static_cast<std::int64_t>(closure.size()));
  for (const manifest::SourceFile& file : closure) hasher.field(file.name).field(file.text);
  hasher.field(static_cast<std::int64_t>(code.name_expressions.size()));
  for (const std::string& name : code.name_expressions) hasher.field(name);
  return manifest::to_hex(hasher.finish());
}

/// The rows as such a version stored them, from sources that had `more` at the end of each file of the op.
inline TunedRows stored_over_text(TunedRows rows, const std::string& more = {}) {
  const manifest::Op& op = rms_norm();
  const Problem bucket = manifest::parse_bucket(op, rows.record.bucket).value();
  const auto device = manifest::DeviceFacts::from_device_class(rows.record.device_class).value();
  auto code = answer::code_needed(answer::resolve_with({{op, device}, bucket}, rows.record), "sm_90a");
  for (jit::Specialisation& each : tune::verification({{op, device}, bucket}, "sm_90a"))
    code.push_back(std::move(each));
  std::vector<manifest::SourceFile> files = op.files.files();
  for (manifest::SourceFile& file : files) file.text = file.text.str() + more;
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (code[i].op == op.name) code[i].files = files;
    store::CubinRow& row = rows.cubins[i];
    row.key = jit::cubin_key_over_text(code[i], row.compiler).value();
    row.source_digest = digest_over_text(code[i]);
    const std::string winner = op.name + "/" + rows.record.at_edge().implementation + " ";
    if (row.label.starts_with(winner)) rows.record.choices.front().source_digest = row.source_digest;
  }
  return rows;
}

inline void put(store::File& file, const TunedRows& rows) { file.put_all({&rows.record, 1}, rows.cubins); }

}  // namespace kiln::testing
