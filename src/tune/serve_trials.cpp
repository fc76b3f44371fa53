#include "tune/serve_trials.hpp"

#include <optional>

#include "jit/compile_pool.hpp"
#include "kiln/error.hpp"
#include "team/exchange.hpp"
#include "team/state.hpp"
#include "tune/worker_messages.hpp"

namespace kiln::tune {
namespace {

/// The state of one bucket. Members are destroyed in reverse order.
struct ServedBucket {
  ServedBucket(Begin asked, team::Member* team)
      : begin(std::move(asked)), context(begin.device), scope(context), cubins(layers, pool) {
    layers.put_all({}, begin.cubins);
    if (team != nullptr) binding = team->trial_binding(0);
    bench = local_bench({{{begin.op, context.info().facts, begin.regime}, begin.bucket},
                         context.info(),
                         begin.arch,
                         team != nullptr ? &binding : nullptr,
                         begin.seed,
                         team},
                        cubins);
  }

  Begin begin;
  cuda::Context context;
  cuda::Context::Scope scope;
  store::Layers layers{store::LayerSettings{}};
  jit::CompilePool pool{1};
  answer::Cubins cubins;
  team::TeamBinding binding;
  std::unique_ptr<Bench> bench;
};

}  // namespace

struct TrialService::State {
  /// Keeps the context from bucket to bucket, because making one can take longer than a tune.
  void keep_context(int device) {
    if (!context || context->info().ordinal != device) context.emplace(device);
  }

  /// Meets the workers of the other ranks. Where one of them ends, its rank ends this one too: nothing else is waited
  /// for within a limit.
  void join(const nlohmann::json& message) {
    own_device = message.at("device");
    const TeamOptions options{.device = own_device,
                              .bytes = message.at("bytes"),
                              .timeout = std::chrono::milliseconds(message.at("timeout_ms").get<std::int64_t>())};
    joined = std::make_unique<team::TeamState>(
        team::Membership{message.at("rank"), message.at("world"), message.at("team")}, options, std::nullopt);
    joined->share_memory(options.bytes);
    patience.emplace(joined->rendezvous);
    team = &*joined->member;
  }

  std::unique_ptr<team::TeamState> joined;  // of a worker whose owner is a rank
  std::optional<team::Patience> patience;   // of its rendezvous
  team::Member* team = nullptr;
  int own_device = -1;  // of a team's rank; -1: as each message says
  std::optional<cuda::Context> context;
  std::optional<ServedBucket> bucket;
};

TrialService::TrialService() : state_(std::make_unique<State>()) {}
TrialService::TrialService(team::Member& team, int device) : TrialService() {
  state_->team = &team;
  state_->own_device = device;
}
TrialService::~TrialService() = default;

nlohmann::json TrialService::answer(const nlohmann::json& message) {
  if (message.contains("files")) {
    Begin begin = begin_from_json(message);
    if (state_->own_device >= 0) begin.device = state_->own_device;
    state_->keep_context(begin.device);
    state_->bucket.reset();
    state_->bucket.emplace(std::move(begin), state_->team);
    return {{"ready", true}, {"prepared_ns", state_->bucket->bench->prepared_ns()}};
  }
  if (message.contains("team")) {
    state_->join(message);
    return {{"joined", true}};
  }
  if (message.contains("nccl")) {
    if (!state_->team->open_nccl()) throw Error(ErrorKind::no_nccl, state_->team->why_no_nccl());
    return {{"open", true}};
  }
  if (message.contains("forget")) {
    state_->bucket.reset();
    return {{"forgotten", true}};
  }
  if (message.contains("reset")) {
    state_->team->reset();
    return {{"reset", true}};
  }
  ServedBucket& bucket = state_->bucket.value();
  if (message.contains("lengths")) {
    bucket.bench->set_sizes(sizes_from_json(bucket.begin.bucket, message.at("lengths")));
    return {{"known", true}};
  }
  if (message.contains("admit")) {
    const OwnedTrial trial = trial_from_json(bucket.begin.op, bucket.begin.bucket, message);
    return to_json(bucket.bench->admit(message.at("admit"), {trial.variant, trial.cubin, trial.at}));
  }
  if (message.contains("drop")) {
    bucket.bench->drop(message.at("drop"));
    return {{"dropped", true}};
  }
  if (message.contains("sample_chains"))
    return to_json(bucket.bench->sample_chains(points_from_json(message.at("sample_chains")), message.at("rounds")));
  return to_json(bucket.bench->sample(points_from_json(message.at("sample")), message.at("rounds")));
}

}  // namespace kiln::tune
