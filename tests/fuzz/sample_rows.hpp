// Rows that a file under test starts from.
#pragma once

#include <string>

#include "store/record.hpp"

namespace kiln::fuzz {

inline store::Record sample_record(const std::string& key) {
  store::Record record;
  record.key = key;
  record.op = "scale";
  record.device_class = "sm_90/mp132";
  record.regime = "cold";
  record.bucket = "rows=512";
  record.baseline_ns = 2000;
  record.provenance = {"0.1.0", "a device", 13000, "exhaustive", 1790000000};
  const std::string digest(64, 'a');
  record.choices = {
      {store::Role::fastest, "rows=257..300", "fast", "threads=64", 900, 890, 910, 40, digest, "nvrtc 13.0"},
      {store::Role::fastest, "rows=301..512", "fast", "threads=256", 1234.5, 1200, 1300.25, 40, digest, "nvrtc 13.0"}};
  record.candidates = {
      {"fast", "threads=256", "rows=512", store::Verdict::ok, "", 1234.5, 1200, 1300.25, 40, 32, 0, false},
      {"fast", "threads=64", "rows=512", store::Verdict::wrong_result, "y[3] is nan", 0, 0, 0, 0, 40, 16, true}};
  return record;
}

inline manifest::Digest sample_key(const std::string& name) {
  return manifest::Hasher().field(std::string_view(name)).finish();
}

inline store::CubinRow sample_cubin(const std::string& name) {
  store::CubinRow cubin;
  cubin.key = sample_key(name);
  cubin.label = "scale " + name;
  cubin.arch = "sm_90a";
  cubin.compiler = "nvrtc 13.0";
  cubin.name_expressions = {"scale<kiln::bf16, 256>"};
  cubin.lowered_names = {"_Z5scale"};
  for (std::size_t at = 0; at < 300; ++at) cubin.image.push_back(static_cast<std::byte>(at * at % 251));
  return cubin;
}

}  // namespace kiln::fuzz
