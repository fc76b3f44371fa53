// Tunes one bucket: verifies candidates, times them at several sizes, and publishes the chosen few with their cubins.
#pragma once

#include <string>
#include <vector>

#include "answer/cubins.hpp"
#include "jit/specialisation.hpp"
#include "kiln/error.hpp"
#include "store/record.hpp"
#include "tune/machine.hpp"
#include "tune/request.hpp"

namespace kiln::tune {

/// A kernel with its machine code.
struct CompiledKernel {
  jit::Specialisation specialisation;
  answer::KeyedCubin cubin;
};

struct TuneResult {
  store::Record record;
  std::vector<CompiledKernel> kernels;  // of the record's choices, each once; none for a library
  std::string warning;                  // why the samples that were asked for are not in their file; the record holds
};

/// Verifies candidates at the bucket's upper edge, lowest sizes and corners, and with lengths in device memory
/// (tune/local_bench.cpp). Tries each case of the op's [prepare] at the lowest sizes. Times candidates at several sizes
/// (answer/timed_sizes.hpp), and chooses few configs with the least regret over the bucket (answer/portfolio.hpp).
/// Writes nothing: an interrupted tune leaves the bucket as it was. A context must be current without a worker, and for
/// an op with a library. Throws Error(not_tuned) when no config is legal or none gave a right result,
/// Error(interrupted) when asked to stop, and Error(out_of_memory) with the bucket. Throws Error(driver_failed) with
/// the candidate that broke the caller's context; a worker only rejects that candidate. Throws Error(io) before the
/// tune when the samples' file cannot be opened.
TuneResult tune_bucket(const TuneRequest& request, answer::Cubins& cubins);
/// Tunes with what another machine gives. Records nothing.
TuneResult tune_bucket(const TuneRequest& request, Machine& machine);

/// Whether a failure concerns one bucket alone, so that others can still be tuned.
bool is_of_one_bucket(ErrorKind kind) noexcept;

/// Begins ahead of time the compiles that a tune of the bucket begins with, as far as they can be foreseen. Throws as a
/// tune does.
void compile_ahead(const TuneRequest& request, answer::Cubins& cubins);

/// Writes the result to the overlay in one transaction: the record, the machine code of its choices, and that of the
/// defaults, which serve real sizes that break a choice's constraints. Returns the machine code. Throws as
/// store::Layers::put_all() does.
std::vector<store::CubinRow> publish(const TuneRequest& request, const TuneResult& result, answer::Cubins& cubins);

}  // namespace kiln::tune
