#include "jit/serve_compiles.hpp"

#include "cuda/nvrtc_api.hpp"
#include "jit/compile_messages.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

/// Throws Error(io) unless NVRTC, headers and sources give this process the owner's cubin key.
void check_key(const CompileRequest& request) {
  const std::string compiler = compiler_identity();
  if (cubin_key(request.specialisation, compiler) == request.key) return;
  throw Error(ErrorKind::io,
              request.specialisation.label + ": the worker has " + compiler +
                  ", and this compiler, the toolkit headers that it finds or its common/ headers are not "
                  "those of the process that asked; name the kiln-worker that belongs to it in "
                  "KILN_WORKER or Options::worker, or set KILN_WORKER=none to do without");
}

}  // namespace

nlohmann::json CompileService::answer(const nlohmann::json& message) {
  CompileRequest request = request_from_json(message);
  manifest::Sources& sources = request.specialisation.files;
  if (sources == last_)
    sources = last_;
  else
    last_ = sources;
  if (!bounded_) {
    process::forbid_core_files();
    if (request.low_priority) process::take_low_priority();
    if (request.memory_bytes > 0) memory_.emplace(request.memory_bytes);
    cuda::Nvrtc::choose(request.nvrtc);
    bounded_ = true;
  }
  std::jthread watch;
  if (memory_) watch = memory_->watch();
  check_key(request);
  return to_json(compile(request.specialisation));
}

}  // namespace kiln::jit
