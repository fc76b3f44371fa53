// What a stream that captures may do, and what captures lacked: so that the next one finds it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/device.hpp"
#include "engine/bucket_plans.hpp"
#include "engine/workspaces.hpp"

namespace kiln::engine {

class CaptureGuard {
 public:
  /// Of an op, by its name in messages.
  CaptureGuard(const cuda::Context& context, std::string op) : context_(context), op_(std::move(op)) {}

  /// Throws Error(capture) where any launch would end another stream's capture, Error(bad_input) for another device's stream.
  [[nodiscard]] bool captures(CUstream stream) const;
  /// What the stream lacked is remembered, for when the bucket gets plans.
  void note_missed(const Problem& bucket, CUstream stream);
  /// The workspace for a stream that has none yet; 0 when it is capturing.
  [[nodiscard]] CUdeviceptr make_workspace(Workspaces& workspaces, CUstream stream) const;
  /// Off captures: the plans' workspaces for a stream, and for those whose captures missed their bucket.
  void make_workspaces(const BucketPlans& plans, CUstream stream);
  void make_missed_workspaces(const BucketPlans& plans);

 private:
  struct Missed {
    Problem bucket;
    std::unique_ptr<Workspaces> streams;  // of no bytes
  };
  const cuda::Context& context_;
  std::string op_;
  std::mutex mutex_;  // guards what follows; held by nobody for long
  std::vector<Missed> missed_;
};

}  // namespace kiln::engine
