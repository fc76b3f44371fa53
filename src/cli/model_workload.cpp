#include "cli/model_workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/workload_entries.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

using manifest::SizeRange;

/// From this many tokens on, the ranks of a team keep a part of the tokens each between the products.
constexpr std::int64_t divided_from = 256;
constexpr std::int64_t most_head_dim = 256;  // of the ops of attention
/// Of a sequence in the mean, where a batch has several paged prompts. Those with fewer belong in attention_decode.
constexpr std::int64_t fewest_queries = 16;
constexpr std::int64_t usual_keys = 1024;  // of the longest sequence in a cache, at least

class ModelWorkload {
 public:
  ModelWorkload(const ModelConfig& model, const ModelRun& run) : model_(model), run_(run) {
    heads_ = part(model.heads, "attention heads");
    // Fewer heads of keys than ranks are held by several ranks each.
    key_heads_ = model.key_heads < run.ranks ? 1 : part(model.key_heads, "heads of keys");
    intermediate_ = part(model.intermediate, "intermediate sizes");
    shared_intermediate_ = part(model.shared_intermediate, "intermediate sizes of the shared expert");
    vocabulary_ = part(model.vocabulary, "words of the vocabulary");
  }

  std::string make() {
    add_norms();
    add_attention_products();
    if (model_.rotary_dim > 0) add_rotary();
    if (model_.head_dim <= most_head_dim && model_.head_dim % 8 == 0) add_attention();
    model_.experts > 0 ? add_experts() : add_feed_forward(intermediate_);
    if (shared_intermediate_ > 0) add_feed_forward(shared_intermediate_);
    if (model_.vocabulary > 0) add_vocabulary();
    return entries_.take();
  }

 private:
  [[nodiscard]] std::int64_t part(std::int64_t of, const char* what) const {
    if (of % run_.ranks == 0) return of / run_.ranks;
    throw Error(
        ErrorKind::bad_input,
        fmt::format("{} ranks do not divide the {} {} of this model; choose another --ranks", run_.ranks, of, what));
  }
  [[nodiscard]] bool separate() const { return run_.projections != Projections::joined; }
  [[nodiscard]] bool joined() const { return run_.projections != Projections::separate; }

  void add(const char* comment, const char* op, const Values& axes, Values types = {}) {
    entries_.add(comment, op, axes, std::move(types));
  }

  void add_norms() {
    Words residual{"none"};
    if (model_.adds_before_norm) residual.emplace_back("add");
    add("before attention and the feed-forward part, and at the end", model_.norm.c_str(),
        {{"rows", toml(run_.tokens)}, {"cols", toml(model_.hidden)}}, {{"residual", toml(residual)}});
    if (model_.has_row_norms)
      add("queries or keys, all heads of a token", "rms_norm",
          {{"rows", toml(run_.tokens)}, {"cols", toml(heads_ * model_.head_dim)}});
    if (!model_.has_head_norms) return;
    for (const std::int64_t heads : distinct({heads_, key_heads_}))
      add("each head of queries or keys", "rms_norm",
          {{"rows", toml(SizeRange{run_.tokens.low * heads, run_.tokens.high * heads})},
           {"cols", toml(model_.head_dim)}});
  }

  /// Products of all tokens with weights of n x k, on several ranks also with the rows that these gather.
  void add_products(const char* comment, const Sizes& n, std::int64_t k, Values types = {}) {
    if (n.empty()) return;
    Values layout{{"layout", toml(Words{"nt"})}};
    Values all = layout;
    all.insert(all.end(), types.begin(), types.end());
    add(comment, "gemm", {{"m", toml(run_.tokens)}, {"n", toml(n)}, {"k", toml(k)}}, all);
    if (divides_tokens())  // whose product has no activation
      add(comment, "all_gather_gemm",
          {{"rows", toml(divided_tokens())}, {"n", toml(n)}, {"k", toml(k)}, {"world", toml(run_.ranks)}},
          {{"ranks", toml(Words{"alike"})}});
  }

  /// Products whose sum over k is divided among the ranks.
  void add_sums(const char* comment, std::int64_t n, std::int64_t k) {
    if (run_.ranks == 1) return add_products(comment, {n}, k);
    const Values types{{"ranks", toml(Words{"alike"})}};
    const Values axes{{"n", toml(n)}, {"k", toml(k)}, {"world", toml(run_.ranks)}};
    const auto with_rows = [&](const SizeRange& rows) {
      Values all{{"rows", toml(rows)}};
      all.insert(all.end(), axes.begin(), axes.end());
      return all;
    };
    add(comment, "gemm_all_reduce", with_rows(run_.tokens), types);
    if (divides_tokens()) add(comment, "gemm_reduce_scatter", with_rows(divided_tokens()), types);
  }

  [[nodiscard]] bool divides_tokens() const { return run_.ranks > 1 && run_.tokens.high >= divided_from; }
  [[nodiscard]] SizeRange divided_tokens() const {
    return {std::max(run_.tokens.low, divided_from) / run_.ranks, run_.tokens.high / run_.ranks};
  }

  void add_attention_products() {
    const std::int64_t queries = heads_ * model_.head_dim, keys = key_heads_ * model_.head_dim;
    if (separate()) add_products("query, key and value, each alone", distinct({queries, keys}), model_.hidden);
    if (joined()) add_products("query, key and value in one product", {queries + 2 * keys}, model_.hidden);
    add_sums("attention output", model_.hidden, queries);
    if (model_.text_tokens > 0) add_text_products();
  }

  void add_rotary() {
    Sizes heads;
    if (separate()) heads = distinct({heads_, key_heads_});
    if (joined()) heads.push_back(heads_ + key_heads_);
    add("queries and keys", "rotary",
        {{"tokens", toml(run_.tokens)},
         {"heads", toml(heads)},
         {"dim", toml(model_.head_dim)},
         {"rotary_dim", toml(model_.rotary_dim)}},
        {{"index", toml(Words{"i32", "i64"})}, {"layout", toml(Words{model_.is_diffusion ? "interleaved" : "half"})}});
  }

  [[nodiscard]] Values attention_axes(const std::string& batch, const std::string& queries,
                                      const std::string& keys) const {
    return {{"batch", batch},
            {"queries", queries},
            {"keys", keys},
            {"heads", toml(heads_)},
            {"key_heads", toml(key_heads_)},
            {"head_dim", toml(model_.head_dim)},
            {"value_dim", toml(model_.head_dim)}};
  }

  void add_attention() {
    Values kinds{{"mask", toml(model_.masks)}};
    if (model_.has_sinks) kinds.emplace_back("sinks", toml(Words{"head"}));
    if (model_.has_soft_cap) kinds.emplace_back("soft_cap", toml(Words{"tanh"}));
    if (model_.is_encoder()) {
      const SizeRange batch{1, std::max(run_.tokens.high / model_.positions, run_.batch.high)};
      kinds.emplace_back("layout", toml(Words{"dense"}));
      return add("all sequences are as long", "attention_forward",
                 attention_axes(toml(batch), toml(model_.positions), toml(model_.positions)), kinds);
    }
    if (model_.is_diffusion) return add_attention_of_images(kinds);
    if (run_.prompts == Prompts::packed) add_packed_prompts(kinds);
    if (run_.has_e4m3_cache) kinds.emplace_back("cache_dtype", toml(Words{"e4m3"}));
    if (run_.prompts == Prompts::paged) add_paged_prompts(kinds);
    kinds.emplace_back("layout", toml(Words{"paged"}));
    add("the next token of each sequence", "attention_decode",
        attention_axes(toml(run_.batch), "1", toml(cached_keys())), kinds);
  }

  [[nodiscard]] SizeRange cached_keys() const {
    return run_.keys.value_or(SizeRange{std::min(run_.tokens.high, usual_keys), run_.tokens.high});
  }

  void add_packed_prompts(Values kinds) {
    kinds.emplace_back("layout", toml(Words{"packed"}));
    for (const std::int64_t length : lengths_of(run_.tokens))
      add("prompts: so many tokens in all", "attention_forward",
          attention_axes(toml(SizeRange{1, std::min(run_.batch.high, length)}), toml(length), toml(length)), kinds);
  }

  /// The longest sequence has no fewer keys than the mean of the queries: fewer sequences give fewer buckets of keys.
  void add_paged_prompts(const Values& kinds) {
    const SizeRange keys = cached_keys();
    bool has_any = false;
    const auto text_of = [](const SizeRange& sizes) { return sizes.low == sizes.high ? toml(sizes.low) : toml(sizes); };
    for (const std::int64_t queries : lengths_of(run_.tokens)) {
      const auto with = [&](const SizeRange& batch, std::int64_t fewest_keys) {
        add("prompts over pages: so many new tokens in all", "attention_paged",
            attention_axes(text_of(batch), toml(queries), text_of({fewest_keys, keys.high})), kinds);
        has_any = true;
      };
      const std::int64_t most = std::clamp<std::int64_t>(queries / fewest_queries, 1, run_.batch.high);
      const std::int64_t fewest_in_bucket = std::max(run_.tokens.low, pow2_ceil(queries) / 2 + 1);
      for (const std::int64_t batch : lengths_of({1, most})) {
        const std::int64_t mean = (fewest_in_bucket + batch - 1) / batch;
        if (mean <= keys.low) {
          with({batch, most}, keys.low);
          break;
        }
        if (mean <= keys.high) with({batch, batch}, std::min(pow2_ceil(mean), keys.high));
      }
    }
    if (has_any) return;
    throw Error(
        ErrorKind::bad_input,
        fmt::format("prompts of {} tokens or more, in {} sequences at most, have more than {} keys each; raise the "
                    "most of --keys",
                    run_.tokens.low, run_.batch.high, keys.high));
  }

  /// Of images or videos, as long in a batch. The tokens of a batch are those of all.
  void add_attention_of_images(Values kinds) {
    kinds.emplace_back("layout", toml(Words{"dense"}));
    for (const std::int64_t length : lengths_of(run_.tokens)) {
      const std::string batch =
          toml(SizeRange{1, std::clamp<std::int64_t>(run_.tokens.high / length, 1, run_.batch.high)});
      add("images of so many tokens", "attention_forward", attention_axes(batch, toml(length), toml(length)), kinds);
      if (model_.text_tokens > 0)
        add("the same, which see the text", "attention_forward",
            attention_axes(batch, toml(length), toml(model_.text_tokens)), kinds);
    }
  }

  /// Its tokens may be fewer than those of a batch of images.
  void add_text_products() {
    const std::int64_t keys = key_heads_ * model_.head_dim;
    const Values types{{"layout", toml(Words{"nt"})}};
    const auto product = [&](std::int64_t n) {
      add("keys and values of the text", "gemm",
          {{"m", toml(SizeRange{model_.text_tokens, model_.text_tokens * run_.batch.high})},
           {"n", toml(n)},
           {"k", toml(model_.hidden)}},
          types);
    };
    if (separate()) product(keys);
    if (joined()) product(2 * keys);
  }

  void add_feed_forward(std::int64_t intermediate) {
    const Values in_product{{"activation", toml(Words{"swiglu"})}};
    if (!model_.is_gated) {
      Values activation;
      if (model_.activation != "none") activation.emplace_back("activation", toml(Words{"none", model_.activation}));
      add_products("the first product of the feed-forward part", {intermediate}, model_.hidden, activation);
    }
    if (model_.is_gated && separate()) add_products("gate and up, each alone", {intermediate}, model_.hidden);
    if (model_.is_gated && model_.has_swiglu && (separate() || divides_tokens()))
      add("between the products", "swiglu", {{"rows", toml(run_.tokens)}, {"cols", toml(intermediate)}});
    if (model_.is_gated && joined())
      add_products(
          model_.has_swiglu ? "gate and up in one product, whose columns alternate" : "gate and up in one product",
          {2 * intermediate}, model_.hidden, model_.has_swiglu ? in_product : Values{});
    add_sums("down", model_.hidden, intermediate);
    if (model_.joins_outputs)
      add_sums("attention output and down in one product", model_.hidden, heads_ * model_.head_dim + intermediate);
  }

  void add_experts() {
    const SizeRange rows{run_.tokens.low * model_.experts_per_token, run_.tokens.high * model_.experts_per_token};
    const auto grouped = [&](const char* comment, std::int64_t n, std::int64_t k, Values types) {
      types.insert(types.begin(), {"layout", toml(Words{"nt"})});
      add(comment, "gemm_grouped",
          {{"m", toml(rows)}, {"n", toml(n)}, {"k", toml(k)}, {"groups", toml(model_.experts)}}, types);
    };
    add("which experts take a token", "gemm",
        {{"m", toml(run_.tokens)}, {"n", toml(model_.experts)}, {"k", toml(model_.hidden)}},
        {{"layout", toml(Words{"nt"})}});
    if (separate() && model_.has_swiglu) {
      grouped("the experts' gate and up, each alone", intermediate_, model_.hidden, {});
      add("between the experts' products", "swiglu", {{"rows", toml(rows)}, {"cols", toml(intermediate_)}});
    }
    if (joined() || !model_.has_swiglu)
      grouped("the experts' gate and up in one product", 2 * intermediate_, model_.hidden,
              model_.has_swiglu ? Values{{"activation", toml(Words{"swiglu"})}} : Values{});
    grouped("the experts' down", model_.hidden, intermediate_, {});
    if (run_.ranks > 1)
      add("the sum of the experts over the ranks", "all_reduce",
          {{"rows", toml(run_.tokens)}, {"cols", toml(model_.hidden)}, {"world", toml(run_.ranks)}},
          {{"ranks", toml(Words{"alike"})}});
  }

  /// Of each sequence the last token alone.
  void add_vocabulary() {
    add("the vocabulary, for the tokens that are sampled", "gemm",
        {{"m", toml(run_.batch)}, {"n", toml(vocabulary_)}, {"k", toml(model_.hidden)}},
        {{"layout", toml(Words{"nt"})}});
    if (run_.ranks > 1 && vocabulary_ % 8 == 0)  // all_gather takes no other columns
      add("the ranks' parts of the vocabulary", "all_gather",
          {{"rows", toml(run_.batch)}, {"cols", toml(vocabulary_)}, {"world", toml(run_.ranks)}},
          {{"ranks", toml(Words{"alike"})}});
  }

  const ModelConfig& model_;
  const ModelRun& run_;
  std::int64_t heads_, key_heads_, intermediate_, shared_intermediate_, vocabulary_;  // of one rank
  WorkloadEntries entries_{model_.dtype};
};

}  // namespace

std::string model_workload(const ModelConfig& model, const ModelRun& run) {
  if (!model.has_cache() && (run.prompts == Prompts::paged || run.keys || run.has_e4m3_cache))
    throw Error(
        ErrorKind::bad_input,
        fmt::format("a model of type {} has no cache of keys; leave out --prompts paged, --keys and --cache-dtype",
                    model.type));
  return ModelWorkload(model, run).make();
}

}  // namespace kiln::cli
