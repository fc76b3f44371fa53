// The messages of a compile in a worker process, as JSON values. Readers throw a std::exception on a malformed message.
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
/// Throws std::runtime_error where the answer lacks machine code, or one of the lowered names that were asked for.
Cubin cubin_from_json(const nlohmann::json& message, std::size_t names);

}  // namespace kiln::jit
