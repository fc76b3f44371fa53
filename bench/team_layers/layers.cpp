#include "team_layers/layers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "blocks/block.hpp"

namespace kiln::bench {
namespace {

constexpr std::size_t sets = 2;  // of weights, which layers take in turns

/// An op with a problem made once a batch, and its arguments: a launch looks up no names.
class Step {
 public:
  explicit Step(const Engine& engine, const char* op) : op_(engine.op(op)) {}
  void set(std::initializer_list<Op::Setting> problem) { problem_ = op_.problem(problem); }
  void set(std::size_t index, std::initializer_list<Op::Argument> arguments) {
    arguments_.at(index) = op_.arguments(arguments);
  }
  void operator()(std::size_t index, Stream stream) const { op_.launch(problem_, arguments_.at(index), stream); }

 private:
  Op op_;
  Problem problem_{};
  std::array<Arguments, sets> arguments_{};
};

/// Normal in all but shape, around `mean`: some million values again and again, since only the time counts.
class Memory {
 public:
  Bf16* drawn(std::int64_t elements, double deviation, double mean = 0) {
    constexpr std::int64_t period = (1 << 20) + 7;
    Bf16* made = tensors_.empty<Bf16>(elements);
    const std::vector<Bf16> values = draw(std::min(elements, period), ++seed_, deviation, mean);
    for (std::int64_t at = 0; at < elements; at += period) {
      const auto bytes = static_cast<std::size_t>(2 * std::min(period, elements - at));
      cuda::check(cuda::Driver::get().cuMemcpyHtoD_v2(reinterpret_cast<CUdeviceptr>(made + at), values.data(), bytes),
                  "cuMemcpyHtoD");
    }
    return made;
  }
  Bf16* weight(std::int64_t outputs, std::int64_t inputs) {
    return drawn(outputs * inputs, 1 / std::sqrt(static_cast<double>(inputs)));
  }
  Bf16* empty(std::int64_t elements) { return tensors_.empty<Bf16>(elements); }

 private:
  Tensors tensors_;
  unsigned seed_ = 0;
};

bool all_finite(const Bf16* values, std::int64_t elements, Stream stream) {
  cuda::check(cuda::Driver::get().cuStreamSynchronize(stream), "cuStreamSynchronize");
  std::vector<Bf16> here(static_cast<std::size_t>(elements));
  cuda::check(cuda::Driver::get().cuMemcpyDtoH_v2(here.data(), reinterpret_cast<CUdeviceptr>(values), 2 * here.size()),
              "cuMemcpyDtoH");
  return std::ranges::none_of(here, [](Bf16 value) { return (value & 0x7f80U) == 0x7f80U; });
}

/// The MLP of Llama 3 70B, cut over ranks by its width, tokens cut over them outside of it.
class Llama : public Layers {
 public:
  Llama(const Engine& engine, std::int64_t world, std::int64_t most_rows)
      : world_(world),
        share_(wide / world),
        norm_(engine, "rms_norm"),
        up_(engine, "all_gather_gemm"),
        swiglu_(engine, "swiglu"),
        down_(engine, "gemm_reduce_scatter"),
        x_(memory_.drawn(most_rows * hidden, 1)) {
    const std::int64_t tokens = most_rows * world;
    Bf16 *normed = memory_.empty(most_rows * hidden), *gate_up = memory_.empty(tokens * 2 * share_),
         *product = memory_.empty(tokens * share_);
    for (std::size_t set = 0; set < sets; ++set) {
      norm_.set(set, {{"x", x_}, {"weight", memory_.drawn(hidden, 0.1, 1)}, {"y", normed}});
      up_.set(set, {{"x", normed}, {"w", memory_.weight(2 * share_, hidden)}, {"y", gate_up}});
      swiglu_.set(set, {{"gate", gate_up},
                        {"up", gate_up + share_},
                        {"y", product},
                        {"gate_row_stride", 2 * share_},
                        {"up_row_stride", 2 * share_}});
      down_.set(set, {{"x", product}, {"w", memory_.weight(hidden, share_)}, {"y", x_}});
    }
  }
  void take(std::int64_t rows) override {  // of each rank: batches are padded to equal parts
    rows_ = rows;
    norm_.set({{"rows", rows}, {"cols", hidden}, {"dtype", "bf16"}});
    up_.set(
        {{"rows", rows}, {"n", 2 * share_}, {"k", hidden}, {"world", world_}, {"dtype", "bf16"}, {"ranks", "alike"}});
    swiglu_.set({{"rows", rows * world_}, {"cols", share_}, {"dtype", "bf16"}});
    down_.set({{"rows", rows}, {"n", hidden}, {"k", share_}, {"world", world_}, {"dtype", "bf16"}, {"ranks", "alike"}});
  }
  void launch(int index, Stream stream) override {
    const std::size_t set = static_cast<std::size_t>(index) % sets;
    for (const Step* step : {&norm_, &up_, &swiglu_, &down_}) (*step)(set, stream);
  }
  [[nodiscard]] bool is_finite(Stream stream) const override { return all_finite(x_, rows_ * hidden, stream); }

 private:
  static constexpr std::int64_t hidden = 8192, wide = 28672;

  Memory memory_;
  std::int64_t world_, share_, rows_ = 0;
  Step norm_, up_, swiglu_, down_;
  Bf16* x_;
};

/// A block of FLUX.1's sizes with whole weights on each rank. Heads of queries, keys and values lie in the product's rows as the ranks share
/// them, so that one exchange brings all three.
class Flux : public Layers {
 public:
  Flux(const Engine& engine, std::int64_t world, std::int64_t most_rows)
      : world_(world),
        share_(heads / world),
        norm_(engine, "rms_norm"),
        qkv_(engine, "gemm"),
        to_heads_(engine, "all_to_all"),
        attention_(engine, "attention_forward"),
        to_rows_(engine, "all_to_all"),
        out_(engine, "gemm"),
        mlp_norm_(engine, "rms_norm"),
        up_(engine, "gemm"),
        down_(engine, "gemm"),
        x_(memory_.drawn(most_rows * hidden, 1)) {
    const std::int64_t all = most_rows * world;
    Bf16 *normed = memory_.empty(most_rows * hidden), *qkv = memory_.empty(most_rows * 3 * hidden),
         *of_heads = memory_.empty(all * 3 * share_ * dim), *attended = memory_.empty(all * share_ * dim),
         *of_rows = memory_.empty(most_rows * hidden), *middle = memory_.empty(most_rows * hidden),
         *activated = memory_.empty(most_rows * wide);
    const std::int64_t stride = 3 * share_ * dim;
    for (std::size_t set = 0; set < sets; ++set) {
      norm_.set(set, {{"x", x_}, {"weight", memory_.drawn(hidden, 0.1, 1)}, {"y", normed}});
      qkv_.set(set, {{"x", normed}, {"w", memory_.weight(3 * hidden, hidden)}, {"y", qkv}});
      to_heads_.set(set, {{"x", qkv}, {"y", of_heads}});
      attention_.set(set, {{"q", of_heads},
                           {"k", of_heads + share_ * dim},
                           {"v", of_heads + 2 * share_ * dim},
                           {"out", attended},
                           {"q_row_stride", stride},
                           {"k_row_stride", stride},
                           {"v_row_stride", stride}});
      to_rows_.set(set, {{"x", attended}, {"y", of_rows}});
      out_.set(set, {{"x", of_rows}, {"w", memory_.weight(hidden, hidden)}, {"y", middle}, {"residual_in", x_}});
      mlp_norm_.set(set, {{"x", middle}, {"weight", memory_.drawn(hidden, 0.1, 1)}, {"y", normed}});
      up_.set(set, {{"x", normed}, {"w", memory_.weight(wide, hidden)}, {"y", activated}});
      down_.set(set, {{"x", activated}, {"w", memory_.weight(hidden, wide)}, {"y", x_}, {"residual_in", middle}});
    }
  }
  void take(std::int64_t rows) override {
    rows_ = rows;
    const std::int64_t tokens = rows * world_;
    for (Step* norm : {&norm_, &mlp_norm_}) norm->set({{"rows", rows}, {"cols", hidden}, {"dtype", "bf16"}});
    qkv_.set({{"m", rows}, {"n", 3 * hidden}, {"k", hidden}, {"dtype", "bf16"}, {"layout", "nt"}});
    to_heads_.set({{"rows", rows},
                   {"heads", 3 * heads},
                   {"dim", dim},
                   {"world", world_},
                   {"dtype", "bf16"},
                   {"direction", "scatter_heads"}});
    attention_.set({{"batch", std::int64_t{1}},
                    {"queries", tokens},
                    {"keys", tokens},
                    {"heads", share_},
                    {"key_heads", share_},
                    {"head_dim", dim},
                    {"value_dim", dim},
                    {"dtype", "bf16"},
                    {"layout", "dense"},
                    {"mask", "none"}});
    to_rows_.set({{"rows", rows},
                  {"heads", heads},
                  {"dim", dim},
                  {"world", world_},
                  {"dtype", "bf16"},
                  {"direction", "gather_heads"}});
    out_.set({{"m", rows}, {"n", hidden}, {"k", hidden}, {"dtype", "bf16"}, {"layout", "nt"}, {"residual", "add"}});
    up_.set({{"m", rows}, {"n", wide}, {"k", hidden}, {"dtype", "bf16"}, {"layout", "nt"}, {"activation", "gelu"}});
    down_.set({{"m", rows}, {"n", hidden}, {"k", wide}, {"dtype", "bf16"}, {"layout", "nt"}, {"residual", "add"}});
  }
  void launch(int index, Stream stream) override {
    const std::size_t set = static_cast<std::size_t>(index) % sets;
    for (const Step* step : {&norm_, &qkv_, &to_heads_, &attention_, &to_rows_, &out_, &mlp_norm_, &up_, &down_})
      (*step)(set, stream);
  }
  [[nodiscard]] bool is_finite(Stream stream) const override { return all_finite(x_, rows_ * hidden, stream); }

 private:
  static constexpr std::int64_t heads = 24, dim = 128, hidden = heads * dim, wide = 4 * hidden;

  Memory memory_;
  std::int64_t world_, share_, rows_ = 0;
  Step norm_, qkv_, to_heads_, attention_, to_rows_, out_, mlp_norm_, up_, down_;
  Bf16* x_;
};

}  // namespace

std::unique_ptr<Layers> make_llama_layers(const Engine& engine, std::int64_t world, std::int64_t most_rows) {
  return std::make_unique<Llama>(engine, world, most_rows);
}
std::unique_ptr<Layers> make_flux_layers(const Engine& engine, std::int64_t world, std::int64_t most_rows) {
  return std::make_unique<Flux>(engine, world, most_rows);
}

}  // namespace kiln::bench
