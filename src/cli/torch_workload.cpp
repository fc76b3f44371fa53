// What python/torch/kiln_torch/patch.py launches, with inference=True and without. tests/cli/models/torch holds
// recordings of it, by which both are tested.
#include "cli/torch_workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cli/workload_entries.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

using manifest::SizeRange;

constexpr std::array<const char*, 3> families{"llama", "qwen2", "qwen3"};

/// A linear layer: y [tokens, out] = x [tokens, in] weight^T.
struct Linear {
  std::int64_t out, in;
};

class TorchWorkload {
 public:
  TorchWorkload(const ModelConfig& model, const TorchRun& run)
      : model_(model),
        run_(run),
        queries_(model.heads * model.head_dim),
        keys_(model.key_heads * model.head_dim),
        can_join_attention_(!model.has_head_norms),
        can_join_gate_(!model.has_gate_bias) {}

  std::string make() {
    add_norms();
    add_products();
    add_rotary();
    add_swiglu();
    add_attention();
    return entries_.take();
  }

 private:
  [[nodiscard]] bool joined(bool can_join) const { return can_join && run_.projections != Projections::separate; }
  [[nodiscard]] bool separate(bool can_join) const { return !can_join || run_.projections != Projections::joined; }

  void add_norm(const char* comment, const SizeRange& rows, std::int64_t cols, const Words& residual) {
    const Values axes{{"rows", toml(rows)}, {"cols", toml(cols)}};
    entries_.add(comment, "rms_norm", axes, {{"residual", toml(residual)}});
    if (run_.gradients) entries_.add("its gradients", "rms_norm_backward", axes, {{"residual", toml(residual)}});
  }

  void add_norms() {
    add_norm("before attention and the feed-forward part, and at the end", run_.tokens, model_.hidden, {"none", "add"});
    if (!model_.has_head_norms) return;
    for (const std::int64_t heads : distinct({model_.heads, model_.key_heads}))
      add_norm("each head of queries or keys", {run_.tokens.low * heads, run_.tokens.high * heads}, model_.head_dim,
               {"none"});
  }

  void add_product(const char* comment, const Linear& of, Values types = {}) {
    types.insert(types.begin(), {"layout", toml(Words{"nt"})});
    entries_.add(comment, "gemm", {{"m", toml(run_.tokens)}, {"n", toml(of.out)}, {"k", toml(of.in)}}, types);
  }

  void add_gradients(const Linear& of) {
    if (!run_.gradients) return;
    entries_.add("gradients of its input", "gemm", {{"m", toml(run_.tokens)}, {"n", toml(of.in)}, {"k", toml(of.out)}},
                 {{"layout", toml(Words{"nn"})}});
    entries_.add("gradients of its weight", "gemm", {{"m", toml(of.out)}, {"n", toml(of.in)}, {"k", toml(run_.tokens)}},
                 {{"layout", toml(Words{"tn"})}});
  }

  void add_products() {
    if (joined(can_join_attention_))
      add_product("query, key and value in one product, for inference", {queries_ + 2 * keys_, model_.hidden});
    for (const std::int64_t out : separate(can_join_attention_) ? distinct({queries_, keys_}) : Sizes{}) {
      add_product("query, key and value, each alone", {out, model_.hidden});
      add_gradients({out, model_.hidden});
    }
    const Linear output{model_.hidden, queries_}, gate{model_.intermediate, model_.hidden},
        down{model_.hidden, model_.intermediate};
    add_product("attention output", output);
    add_gradients(output);
    if (joined(can_join_gate_))
      add_product("gate and up in one product, whose columns alternate, for inference", {2 * gate.out, gate.in},
                  {{"activation", toml(Words{"swiglu"})}});
    if (separate(can_join_gate_)) {
      add_product("gate and up, each alone", gate);
      add_gradients(gate);
    }
    add_product("down, to which the residual is added", down, {{"residual", toml(Words{"add"})}});
    add_gradients(down);
  }

  void add_rotary() {
    const auto add = [&](const char* comment, const Sizes& heads, const char* direction) {
      entries_.add(comment, "rotary",
                   {{"tokens", toml(run_.tokens)},
                    {"heads", toml(heads)},
                    {"dim", toml(model_.head_dim)},
                    {"rotary_dim", toml(model_.rotary_dim)}},
                   {{"index", toml(Words{"i32"})}, {"direction", toml(Words{direction})}});
    };
    const Sizes apart = distinct({model_.heads, model_.key_heads});
    if (joined(can_join_attention_))
      add("queries and keys in one launch, for inference", {model_.heads + model_.key_heads}, "forward");
    if (!separate(can_join_attention_)) return;
    add("queries and keys, each alone", apart, "forward");
    if (run_.gradients) add("their gradients", apart, "backward");
  }

  void add_swiglu() {
    if (!separate(can_join_gate_)) return;
    const Values axes{{"rows", toml(run_.tokens)}, {"cols", toml(model_.intermediate)}};
    entries_.add("between the products", "swiglu", axes);
    if (run_.gradients) entries_.add("its gradients", "swiglu_backward", axes);
  }

  void add_attention() {
    for (const std::int64_t length : lengths_of(run_.tokens)) {
      const std::int64_t most = std::max(run_.batch.low, run_.tokens.high / length);
      add_attention_of("sequences of one length", "dense", length, {1, std::min(run_.batch.high, most)});
      add_attention_of("packed sequences of so many tokens in all", "packed", length,
                       {1, std::min(run_.batch.high, length)});
    }
    const std::int64_t most = model_.window == 0 ? run_.tokens.high : std::min(model_.window, run_.tokens.high);
    if (std::find(model_.masks.begin(), model_.masks.end(), "causal") == model_.masks.end())
      return add_step("the next token of each sequence, which sees its window",
                      {std::min(run_.tokens.low, most), most});
    add_step("the next token of each sequence, which sees its cache", run_.tokens);
    if (most < run_.tokens.low) add_step("the same in layers with a window", {most, most});
  }

  /// Layout indexed is for batches with padding.
  void add_step(const char* comment, const SizeRange& keys) {
    entries_.add(comment, "attention_decode",
                 axes_of_attention(toml(run_.batch), "1", keys.low == keys.high ? toml(keys.low) : toml(keys)),
                 {{"mask", toml(Words{"causal"})}, {"layout", toml(Words{"contiguous", "indexed"})}});
  }

  void add_attention_of(const char* comment, const char* layout, std::int64_t length, const SizeRange& batch) {
    const Values axes = axes_of_attention(toml(batch), toml(length), toml(length));
    const Values types{{"mask", toml(model_.masks)}, {"layout", toml(Words{layout})}};
    entries_.add(comment, "attention_forward", axes, types);
    if (run_.gradients) entries_.add("their gradients", "attention_backward", axes, types);
  }

  [[nodiscard]] Values axes_of_attention(const std::string& batch, const std::string& queries,
                                         const std::string& keys) const {
    return {{"batch", batch},
            {"queries", queries},
            {"keys", keys},
            {"heads", toml(model_.heads)},
            {"key_heads", toml(model_.key_heads)},
            {"head_dim", toml(model_.head_dim)},
            {"value_dim", toml(model_.head_dim)}};
  }

  const ModelConfig& model_;
  const TorchRun& run_;
  const std::int64_t queries_, keys_;  // columns of all heads
  const bool can_join_attention_;      // else norms of heads lie between the products and rotary
  const bool can_join_gate_;
  WorkloadEntries entries_{model_.dtype};
};

}  // namespace

std::string torch_workload(const ModelConfig& model, const TorchRun& run) {
  if (std::find(families.begin(), families.end(), model.type) == families.end() || !model.has_swiglu)
    throw Error(ErrorKind::bad_input,
                fmt::format("kiln.torch.patch takes models of the types {} with silu, and this one is {}{}; without "
                            "--for torch a workload of its ops is written",
                            fmt::join(families, ", "), model.type, model.has_swiglu ? "" : " without silu"));
  return TorchWorkload(model, run).make();
}

}  // namespace kiln::cli
