// A compile as it goes to a worker, and what comes back, as JSON values.
#pragma once

#include <nlohmann/json.hpp>

#include "jit/compile_pool.hpp"
#include "jit/specialisation.hpp"

namespace kiln::jit {

struct CompileRequest {
  manifest::Digest key{};
  Specialisation specialisation;
  std::string nvrtc;  // the library of the owner, which the worker opens too
  std::int64_t memory_bytes = 0;
  bool low_priority = false;
};

/// {"compile": ...}
nlohmann::json to_json(const CompileRequest& request);
CompileRequest request_from_json(const nlohmann::json& message);

nlohmann::json to_json(const Cubin& cubin);
Cubin cubin_from_json(const nlohmann::json& message);

}  // namespace kiln::jit
