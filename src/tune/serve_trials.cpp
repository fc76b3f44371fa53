// The worker's side.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "jit/compile_pool.hpp"
#include "tune/channel.hpp"
#include "tune/worker.hpp"
#include "tune/worker_messages.hpp"

namespace kiln::tune {
namespace {

/// A kernel that never ends keeps the main thread; this one notices that nobody waits for it any more.
void exit_when_closed(int descriptor) {
  std::thread([descriptor] {
    pollfd peer{descriptor, POLLRDHUP, 0};
    while (poll(&peer, 1, -1) <= 0) {
    }
    _exit(0);
  }).detach();
}

/// What one bucket needs, in the order in which it must go.
struct Bucket {
  explicit Bucket(Begin asked) : begin(std::move(asked)), context(begin.device), scope(context), cubins(layers, pool) {
    layers.put_all({}, begin.cubins);
    bench = local_bench({begin.op, begin.bucket, context.info(), begin.regime, begin.arch, begin.limits}, cubins);
  }

  Begin begin;
  cuda::Context context;
  cuda::Context::Scope scope;
  store::Layers layers{store::LayerSettings{}};
  jit::CompilePool pool{1};
  Cubins cubins;
  std::unique_ptr<Bench> bench;
};

class Service {
 public:
  nlohmann::json answer(const nlohmann::json& message) {
    if (message.contains("files")) {
      keep_context(message.at("device"));
      bucket_.reset();
      bucket_.emplace(begin_from_json(message));
      return {{"ready", true}};
    }
    const OwnedTrial trial = trial_from_json(bucket_.value().begin.op, message);
    return to_json(bucket_->bench->try_one({*trial.implementation, trial.config, trial.cubin, trial.best_ns}));
  }

 private:
  /// From bucket to bucket: making one takes longer than a tune does.
  void keep_context(int device) {
    if (!context_ || context_->info().ordinal != device) context_.emplace(device);
  }

  std::optional<cuda::Context> context_;
  std::optional<Bucket> bucket_;
};

}  // namespace

int serve_trials(int descriptor) {
  const Channel channel(descriptor);
  exit_when_closed(descriptor);
  Service service;
  nlohmann::json message;
  while (channel.receive(message) == Channel::State::received) {
    nlohmann::json answer;
    bool broken = false;
    try {
      answer = service.answer(message);
    } catch (const Error& error) {
      answer = to_json(error);
      broken = error.kind() == ErrorKind::driver_failed;
    } catch (const std::exception& error) {
      answer = to_json(Error(ErrorKind::io, fmt::format("the worker could not go on: {}", error.what())));
    }
    if (!channel.send(answer)) break;
    if (broken) _exit(0);  // nothing of that context can be given back
  }
  _exit(0);
}

}  // namespace kiln::tune
