// attention_forward over packed batches of unlike lengths, bf16; with --backward the gradients from its results.
//
//   bench_attention_packed --overlay FILE [--backward] < bench/problems/attention_packed.txt
//
// What FILE lacks is tuned into it first. One JSON object a batch: the median device time with L2 flushed, and the rate that counts each
// sequence's own work, half of it where the mask is causal.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "answer/cubins.hpp"
#include "cuda/device.hpp"
#include "device_values.hpp"
#include "kiln/kiln.hpp"
#include "row.hpp"
#include "store/layers.hpp"
#include "tune/measure.hpp"

namespace {

using kiln::bench::address;
using kiln::bench::normal_bf16;

struct Batch {
  std::string name, mask;
  std::int64_t heads = 0, key_heads = 0, dim = 0;
  std::vector<int> offsets{0};

  [[nodiscard]] std::int64_t tokens() const { return offsets.back(); }
  [[nodiscard]] std::int64_t sequences() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  [[nodiscard]] std::int64_t longest() const {
    int most = 0;
    for (std::size_t i = 1; i < offsets.size(); ++i) most = std::max(most, offsets[i] - offsets[i - 1]);
    return most;
  }
  [[nodiscard]] double operations() const {
    double pairs = 0;
    for (std::size_t i = 1; i < offsets.size(); ++i) pairs += std::pow(offsets[i] - offsets[i - 1], 2.0);
    return 4 * pairs * static_cast<double>(heads * dim) / (mask == "causal" ? 2 : 1);
  }
};

std::vector<Batch> read_batches(std::istream& from) {
  std::vector<Batch> batches;
  for (std::string line; std::getline(from, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    Batch& batch = batches.emplace_back();
    words >> batch.name >> batch.mask >> batch.heads >> batch.key_heads >> batch.dim;
    for (int length = 0; words >> length;) batch.offsets.push_back(batch.offsets.back() + length);
    if (batch.dim == 0 || batch.tokens() == 0)
      throw kiln::Error(kiln::ErrorKind::bad_input, "a line wants NAME MASK HEADS KEY_HEADS DIM LENGTH...: " + line);
  }
  return batches;
}

class Bench {
 public:
  Bench(const kiln::Options& options, bool backward)
      : backward_(backward),
        engine_(options),
        context_(options.device),
        scope_(context_),
        layers_({.bases = options.bases}),
        cubins_(layers_, pool_),
        stopwatch_(context_.info().facts, kiln::Regime::cold_l2, kiln::jit::default_arch(context_.info().facts.sm()),
                   cubins_),
        forward_op_(engine_.op("attention_forward")),
        backward_op_(engine_.op("attention_backward")) {}

  void run(const Batch& batch) {
    const auto offsets = kiln::bench::upload(batch.offsets);
    const auto q = normal_bf16(batch.tokens() * batch.heads * batch.dim, 1),
               k = normal_bf16(batch.tokens() * batch.key_heads * batch.dim, 2),
               v = normal_bf16(batch.tokens() * batch.key_heads * batch.dim, 3);
    const kiln::cuda::Buffer out(q.bytes()),
        lse(batch.tokens() * batch.heads * static_cast<std::int64_t>(sizeof(float)));
    const kiln::Arguments forward = forward_op_.arguments({{"q", address(q)},
                                                           {"k", address(k)},
                                                           {"v", address(v)},
                                                           {"out", address(out)},
                                                           {"lse", backward_ ? address(lse) : nullptr},
                                                           {"query_offsets", address(offsets)},
                                                           {"key_offsets", address(offsets)},
                                                           {"longest_query", batch.longest()}});
    if (!backward_) return time(batch, forward_op_, forward);
    forward_op_.launch(problem_of(batch, forward_op_), forward, stream_.handle());
    const auto dout = normal_bf16(batch.tokens() * batch.heads * batch.dim, 4);
    const kiln::cuda::Buffer dq(q.bytes()), dk(k.bytes()), dv(v.bytes());
    time(batch, backward_op_,
         backward_op_.arguments({{"q", address(q)},
                                 {"k", address(k)},
                                 {"v", address(v)},
                                 {"out", address(out)},
                                 {"lse", address(lse)},
                                 {"dout", address(dout)},
                                 {"query_offsets", address(offsets)},
                                 {"key_offsets", address(offsets)},
                                 {"dq", address(dq)},
                                 {"dk", address(dk)},
                                 {"dv", address(dv)}}));
  }

 private:
  static kiln::Problem problem_of(const Batch& batch, const kiln::Op& op) {
    return op.problem({{"batch", batch.sequences()},
                       {"queries", batch.tokens()},
                       {"keys", batch.tokens()},
                       {"heads", batch.heads},
                       {"key_heads", batch.key_heads},
                       {"head_dim", batch.dim},
                       {"value_dim", batch.dim},
                       {"dtype", "bf16"},
                       {"layout", "packed"},
                       {"mask", std::string_view(batch.mask)}});
  }

  void time(const Batch& batch, const kiln::Op& op, const kiln::Arguments& arguments) {
    const kiln::Problem problem = problem_of(batch, op);
    op.launch(problem, arguments, stream_.handle());
    const kiln::tune::Cost cost =
        stopwatch_.measure([&](CUstream stream) { op.launch(problem, arguments, stream); }, stream_.handle(), {});
    const kiln::Plan plan = op.plan(problem, stream_.handle());
    const double operations = batch.operations() * (backward_ ? 2.5 : 1);  // five products in place of two
    fmt::print(
        "{},\"pass\":\"{}\",\"asked\":\"{}\",\"sequences\":{},\"tokens\":{},\"longest\":{},\"mask\":\"{}\","
        "\"ns\":{:.0f},\"low_ns\":{:.0f},\"high_ns\":{:.0f},\"tflop_s\":{:.1f},\"implementation\":\"{}\",\"config\":\"{}\"}}\n",
        bench::compiled_row("attention_packed"), backward_ ? "backward" : "forward", batch.name, batch.sequences(),
        batch.tokens(), batch.longest(), batch.mask, cost.median_ns, cost.low_ns, cost.high_ns,
        operations / cost.median_ns / 1000, plan.implementation(), plan.config());
    std::fflush(stdout);
  }

  bool backward_;
  kiln::Engine engine_;
  kiln::cuda::Context context_;
  kiln::cuda::Context::Scope scope_;
  kiln::store::Layers layers_;
  kiln::jit::CompilePool pool_;
  kiln::answer::Cubins cubins_;
  kiln::cuda::Stream stream_;
  kiln::tune::Stopwatch stopwatch_;
  kiln::Op forward_op_, backward_op_;
};

}  // namespace

int main(int argc, char** argv) {
  const bool backward = argc == 4 && std::string_view(argv[3]) == "--backward";
  if (argc != (backward ? 4 : 3) || std::string_view(argv[1]) != "--overlay") {
    fmt::print(
        stderr,
        "usage: bench_attention_packed --overlay FILE [--backward] < BATCHES (what it lacks is tuned into it)\n");
    return 2;
  }
  try {
    kiln::Options options;
    options.overlay = argv[2];
    Bench bench(options, backward);
    for (const Batch& batch : read_batches(std::cin)) bench.run(batch);
  } catch (const kiln::Error& error) {
    fmt::print(stderr, "bench_attention_packed: {}\n", error.what());
    return 3;
  }
  return 0;
}
