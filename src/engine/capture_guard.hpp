// Keeps allocations off capturing streams, and makes the workspaces that captures lacked before the next capture.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>

#include "cuda/device.hpp"
#include "engine/bucket_plans.hpp"
#include "engine/workspaces.hpp"
#include "manifest/bucketing.hpp"

namespace kiln::engine {

class CaptureGuard {
 public:
  /// `op`: its name, for messages.
  CaptureGuard(const cuda::Context& context, std::string op) : context_(context), op_(std::move(op)) {}

  /// Whether the stream captures. Throws Error(capture) for the legacy stream where a launch on it would end another stream's capture, and
  /// Error(bad_input) for another device's stream.
  [[nodiscard]] bool captures(CUstream stream) const;
  /// Remembers that a capture on the stream missed the bucket.
  void note_missed(const Problem& bucket, CUstream stream);
  /// Makes the stream's workspace, unless the stream captures: then 0. Throws as captures() and Workspaces::make do.
  [[nodiscard]] CUdeviceptr make_workspace(Workspaces& workspaces, CUstream stream) const;
  /// Makes the plans' workspaces for a stream that does not capture, then make_missed_workspaces().
  void make_workspaces(const BucketPlans& plans, CUstream stream);
  /// Makes the plans' workspaces for the streams whose captures missed their bucket, as far as memory suffices.
  void make_missed_workspaces(const BucketPlans& plans);

 private:
  const cuda::Context& context_;
  std::string op_;
  std::mutex mutex_;  // guards missed_
  /// By bucket, workspaces of 0 bytes for the streams whose captures missed it.
  std::unordered_map<Problem, Workspaces, manifest::ProblemHash> missed_;
};

}  // namespace kiln::engine
