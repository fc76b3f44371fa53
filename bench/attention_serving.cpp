// Attention of a server: packed batches whose lengths and run-time values change with each step.
//
//   bench_attention_serving --overlay FILE
//
// attention_forward, bf16, window mask, soft cap, 16 heads on 4 key heads, 128 wide, 16 sequences of up to 8,192 tokens together. What FILE
// lacks is tuned into it first. Two JSON lines:
//   steps   1,000 launches of one bucket in a new engine. Offsets, scale, cap, window, diagonal, longest query and batch strides differ: how
//           many were served by a ready plan (hot), by a look-up, by a tune
//   graph   one graph, captured once, replayed over 200 random batches, beside eager launches of the same batches: how many outputs are the
//           same bit for bit, and the graph's time over the eager launch's (median and largest of the medians of each batch)
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "captured.hpp"
#include "cuda/device.hpp"
#include "device_values.hpp"
#include "kiln/kiln.hpp"
#include "row.hpp"

namespace {

using kiln::bench::address;
using kiln::bench::normal_bf16;
using kiln::cuda::check;
using kiln::cuda::Driver;

constexpr std::int64_t sequences = 16, tokens = 8192, heads = 16, key_heads = 4, dim = 128;
constexpr int steps = 1000, batches = 200, repeats = 9;

using Offsets = std::array<int, sequences + 1>;

/// Lengths of a log-normal distribution, some of them 0, that take a random part of the tokens.
Offsets draw(std::mt19937_64& random) {
  std::lognormal_distribution<double> length(0, 1.2);
  std::array<double, sequences> weights{};
  for (double& each : weights) each = random() % 5 == 0 ? 0 : length(random);
  const double sum = std::max(1e-9, std::accumulate(weights.begin(), weights.end(), 0.0));
  const double part = std::uniform_real_distribution<double>(0.05, 1)(random) * tokens;
  Offsets offsets{};
  double end = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    end += weights[i] / sum * part;
    offsets[i + 1] = static_cast<int>(std::min<double>(end, tokens));
  }
  return offsets;
}

struct RuntimeValues {
  std::int64_t left = 1024, right = 0, from_end = 1, longest = tokens, plane = tokens * heads * dim;
  double scale = 1 / std::sqrt(double{dim}), cap = 30;
};

class Attention {
 public:
  Attention(const std::filesystem::path& overlay, kiln::MissPolicy on_miss)
      : engine_(options(overlay, on_miss)),
        op_(engine_.op("attention_forward")),
        problem_(op_.problem({{"batch", sequences},
                              {"queries", tokens},
                              {"keys", tokens},
                              {"heads", heads},
                              {"key_heads", key_heads},
                              {"head_dim", dim},
                              {"value_dim", dim},
                              {"dtype", "bf16"},
                              {"layout", "packed"},
                              {"mask", "window"},
                              {"soft_cap", "tanh"}})),
        q_(normal_bf16(tokens * heads * dim, 1)),
        k_(normal_bf16(tokens * key_heads * dim, 2)),
        v_(normal_bf16(tokens * key_heads * dim, 3)),
        offsets_(sizeof(Offsets)) {}

  [[nodiscard]] kiln::Stats stats() const { return engine_.stats(); }
  kiln::Plan plan(CUstream stream) const { return op_.plan(problem_, stream); }
  void set(const Offsets& offsets) const { offsets_.copy_from_host(offsets.data(), sizeof offsets); }
  void launch(const kiln::cuda::Buffer& out, const RuntimeValues& values, CUstream stream) const {
    op_.launch(problem_,
               op_.arguments({{"q", address(q_)},
                              {"k", address(k_)},
                              {"v", address(v_)},
                              {"out", address(out)},
                              {"query_offsets", address(offsets_)},
                              {"key_offsets", address(offsets_)},
                              {"window_left", values.left},
                              {"window_right", values.right},
                              {"from_end", values.from_end},
                              {"longest_query", values.longest},
                              {"q_batch_stride", values.plane},
                              {"k_batch_stride", values.plane},
                              {"v_batch_stride", values.plane},
                              {"out_batch_stride", values.plane},
                              {"scale", values.scale},
                              {"cap", values.cap}}),
               stream);
  }

 private:
  static kiln::Options options(const std::filesystem::path& overlay, kiln::MissPolicy on_miss) {
    kiln::Options options;
    options.overlay = overlay;
    options.on_miss = on_miss;
    return options;
  }

  kiln::Engine engine_;
  kiln::Op op_;
  kiln::Problem problem_;
  kiln::cuda::Buffer q_, k_, v_, offsets_;
};

void show_steps(const std::filesystem::path& overlay) {
  const Attention attention(overlay, kiln::MissPolicy::tune);
  const kiln::cuda::Stream stream;
  const kiln::cuda::Buffer out(tokens * heads * dim * 2);
  std::mt19937_64 random(5);
  for (int step = 0; step < steps; ++step) {
    attention.set(draw(random));
    RuntimeValues values;
    values.left = 1 + step;
    values.right = step % 7;
    values.from_end = step % 2;
    values.longest = tokens - step;
    values.plane += 64 * step;
    values.scale *= 1 + 1e-3 * step;
    values.cap = 10 + 0.01 * step;
    attention.launch(out, values, stream.handle());
    check(Driver::get().cuStreamSynchronize(stream.handle()), "cuStreamSynchronize");
  }
  const kiln::Stats stats = attention.stats();
  fmt::print("{},\"steps\":{},\"hot\":{},\"looked_up\":{},\"tunes\":{},\"compiles\":{}}}\n",
             bench::compiled_row("attention_steps"), steps, stats.hot, stats.launches() - stats.hot, stats.tunes,
             stats.compiles);
}

template <class Work>
double time_ns(CUstream stream, const Work& work) {
  const kiln::cuda::Event begin, end;
  begin.record(stream);
  work();
  end.record(stream);
  end.synchronize();
  return kiln::cuda::Event::elapsed_ns(begin, end);
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

void show_graph(const std::filesystem::path& overlay) {
  const Attention attention(overlay, kiln::MissPolicy::tune);
  const kiln::cuda::Stream stream;
  const kiln::cuda::Buffer eager(tokens * heads * dim * 2), replayed(tokens * heads * dim * 2);
  const kiln::Plan plan = attention.plan(stream.handle());
  const kiln::bench::Captured graph(stream.handle(), [&] { attention.launch(replayed, {}, stream.handle()); });
  std::mt19937_64 random(6);
  std::vector<char> a(static_cast<std::size_t>(eager.bytes())), b(a.size());
  int same = 0;
  std::vector<double> ratios, graph_ns;
  for (int batch = 0; batch < batches; ++batch) {
    attention.set(draw(random));
    for (const auto* each : {&eager, &replayed}) each->fill_bytes(0xff, stream.handle());
    attention.launch(eager, {}, stream.handle());
    graph.launch(stream.handle());
    check(Driver::get().cuStreamSynchronize(stream.handle()), "cuStreamSynchronize");
    eager.copy_to_host(a.data(), eager.bytes());
    replayed.copy_to_host(b.data(), replayed.bytes());
    same += std::memcmp(a.data(), b.data(), a.size()) == 0 ? 1 : 0;
    std::vector<double> of_eager, of_graph;
    for (int i = 0; i < repeats; ++i) {
      of_eager.push_back(time_ns(stream.handle(), [&] { attention.launch(eager, {}, stream.handle()); }));
      of_graph.push_back(time_ns(stream.handle(), [&] { graph.launch(stream.handle()); }));
    }
    graph_ns.push_back(median(of_graph));
    ratios.push_back(graph_ns.back() / median(of_eager));
  }
  fmt::print(
      "{},\"batches\":{},\"same_bits\":{},\"graph_ns\":{:.0f},\"ratio\":{:.4f},"
      "\"largest_ratio\":{:.4f},\"implementation\":\"{}\",\"config\":\"{}\"}}\n",
      bench::compiled_row("attention_graph"), batches, same, median(graph_ns), median(ratios), std::ranges::max(ratios),
      plan.implementation(), plan.config());
}

int run(const std::filesystem::path& overlay) {
  const kiln::cuda::Context context(0);
  const kiln::cuda::Context::Scope scope(context);
  {
    const Attention first(overlay, kiln::MissPolicy::tune);  // tunes what the file lacks
    const kiln::cuda::Stream stream;
    (void)first.plan(stream.handle());
  }
  show_steps(overlay);
  show_graph(overlay);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || std::string_view(argv[1]) != "--overlay") {
    fmt::print(stderr, "usage: bench_attention_serving --overlay FILE (what it lacks is tuned into it)\n");
    return 2;
  }
  try {
    return run(argv[2]);
  } catch (const kiln::Error& error) {
    fmt::print(stderr, "bench_attention_serving: {}\n", error.what());
    return 3;
  }
}
