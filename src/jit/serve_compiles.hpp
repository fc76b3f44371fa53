// The worker's side of a compile.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "manifest/sources.hpp"
#include "process/setup.hpp"

namespace kiln::jit {

class CompileService {
 public:
  /// To {"compile": ...}: the cubin. Throws what compile() throws, and Error(io) when this process would compile under another key than
  /// its owner. Takes the bounds that the first message names.
  nlohmann::json answer(const nlohmann::json& message);

 private:
  bool bounded_ = false;
  std::optional<process::MemoryLimit> memory_;
  manifest::Sources last_;  // with what is known of them: compiles of one op follow each other
};

}  // namespace kiln::jit
