// The messages of a compile in a worker process, as JSON values. Readers throw nlohmann::json::exception on a malformed message.
#pragma once

#include <nlohmann/json.hpp>

#include "jit/compile_pool.hpp"
#include "jit/specialisation.hpp"

namespace kiln::jit {

struct CompileRequest {
  manifest::Digest key{};
  Specialisation specialisation;
  std::string nvrtc;              // path of the owner's NVRTC, which the worker opens too
  std::int64_t memory_bytes = 0;  // limit of the worker; 0: none
  bool low_priority = false;
};

/// {"compile": ...}
nlohmann::json to_json(const CompileRequest& request);
CompileRequest request_from_json(const nlohmann::json& message);

nlohmann::json to_json(const Cubin& cubin);
Cubin cubin_from_json(const nlohmann::json& message);

}  // namespace kiln::jit
