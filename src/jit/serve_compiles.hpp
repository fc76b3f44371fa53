// Answers compile messages in a worker process.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "manifest/sources.hpp"
#include "process/setup.hpp"

namespace kiln::jit {

class CompileService {
 public:
  /// Answers {"compile": ...} with the cubin. The first message sets this process's memory limit and priority. Throws
  /// what compile() throws, and Error(io) when this process has another cubin key than its owner.
  nlohmann::json answer(const nlohmann::json& message);

 private:
  bool bounded_ = false;
  std::optional<process::MemoryLimit> memory_;
  manifest::Sources last_;  // keeps the include closure for the next compile of the same op
};

}  // namespace kiln::jit
