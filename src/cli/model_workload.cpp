#include "cli/model_workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

using manifest::SizeRange;
using Sizes = std::vector<std::int64_t>;
using Words = std::vector<std::string>;

/// From this many tokens on, the ranks of a team keep a part of the tokens each between the products.
constexpr std::int64_t divided_from = 256;
constexpr std::int64_t most_head_dim = 256;  // of the ops of attention

std::string text(std::int64_t size) { return fmt::to_string(size); }
std::string text(const SizeRange& range) { return fmt::format("\"{}..{}\"", range.low, range.high); }
std::string text(const Sizes& sizes) {
  return sizes.size() == 1 ? text(sizes.front()) : fmt::format("[{}]", fmt::join(sizes, ", "));
}
std::string text(const Words& words) {
  return words.size() == 1 ? fmt::format("\"{}\"", words.front()) : fmt::format("[\"{}\"]", fmt::join(words, "\", \""));
}

/// Sizes in the order in which they came, each once.
Sizes distinct(std::initializer_list<std::int64_t> sizes) {
  Sizes result;
  for (const std::int64_t each : sizes)
    if (each > 0 && std::find(result.begin(), result.end(), each) == result.end()) result.push_back(each);
  return result;
}

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
    return std::move(text_);
  }

 private:
  using Axes = std::vector<std::pair<std::string, std::string>>;

  [[nodiscard]] std::int64_t part(std::int64_t of, const char* what) const {
    if (of % run_.ranks == 0) return of / run_.ranks;
    throw Error(
        ErrorKind::bad_input,
        fmt::format("{} ranks do not divide the {} {} of this model; choose another --ranks", run_.ranks, of, what));
  }
  [[nodiscard]] bool separate() const { return run_.projections != Projections::joined; }
  [[nodiscard]] bool joined() const { return run_.projections != Projections::separate; }

  void add(const char* comment, const char* op, const Axes& axes, Axes types = {}) {
    types.insert(types.begin(), {"dtype", text(Words{model_.dtype})});
    const auto pairs = [](const Axes& given) {
      Words parts;
      for (const auto& [name, value] : given) parts.push_back(fmt::format("{} = {}", name, value));
      return fmt::format("{{ {} }}", fmt::join(parts, ", "));
    };
    text_ += fmt::format("\n[[workload]] # {}\nop    = \"{}\"\naxes  = {}\ntypes = {}\n", comment, op, pairs(axes),
                         pairs(types));
  }

  void add_norms() {
    Words residual{"none"};
    if (model_.adds_before_norm) residual.emplace_back("add");
    add("before attention and the feed-forward part, and at the end", model_.norm.c_str(),
        {{"rows", text(run_.tokens)}, {"cols", text(model_.hidden)}}, {{"residual", text(residual)}});
    if (model_.has_row_norms)
      add("queries or keys, all heads of a token", "rms_norm",
          {{"rows", text(run_.tokens)}, {"cols", text(heads_ * model_.head_dim)}});
    if (!model_.has_head_norms) return;
    for (const std::int64_t heads : distinct({heads_, key_heads_}))
      add("each head of queries or keys", "rms_norm",
          {{"rows", text(SizeRange{run_.tokens.low * heads, run_.tokens.high * heads})},
           {"cols", text(model_.head_dim)}});
  }

  /// Products of all tokens with weights of n x k, on several ranks also with the rows that these gather.
  void add_products(const char* comment, const Sizes& n, std::int64_t k, Axes types = {}) {
    if (n.empty()) return;
    Axes layout{{"layout", text(Words{"nt"})}};
    Axes all = layout;
    all.insert(all.end(), types.begin(), types.end());
    add(comment, "gemm", {{"m", text(run_.tokens)}, {"n", text(n)}, {"k", text(k)}}, all);
    if (divides_tokens())  // whose product has no activation
      add(comment, "all_gather_gemm",
          {{"rows", text(divided_tokens())}, {"n", text(n)}, {"k", text(k)}, {"world", text(run_.ranks)}},
          {{"ranks", text(Words{"alike"})}});
  }

  /// Products whose sum over k is divided among the ranks.
  void add_sums(const char* comment, std::int64_t n, std::int64_t k) {
    if (run_.ranks == 1) return add_products(comment, {n}, k);
    const Axes types{{"ranks", text(Words{"alike"})}};
    const Axes axes{{"n", text(n)}, {"k", text(k)}, {"world", text(run_.ranks)}};
    const auto with_rows = [&](const SizeRange& rows) {
      Axes all{{"rows", text(rows)}};
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
        {{"tokens", text(run_.tokens)},
         {"heads", text(heads)},
         {"dim", text(model_.head_dim)},
         {"rotary_dim", text(model_.rotary_dim)}},
        {{"index", text(Words{"i32", "i64"})}, {"layout", text(Words{model_.is_diffusion ? "interleaved" : "half"})}});
  }

  [[nodiscard]] Axes attention_axes(const std::string& batch, const std::string& queries,
                                    const std::string& keys) const {
    return {{"batch", batch},
            {"queries", queries},
            {"keys", keys},
            {"heads", text(heads_)},
            {"key_heads", text(key_heads_)},
            {"head_dim", text(model_.head_dim)},
            {"value_dim", text(model_.head_dim)}};
  }

  void add_attention() {
    Axes kinds{{"mask", text(model_.masks)}};
    if (model_.has_sinks) kinds.emplace_back("sinks", text(Words{"head"}));
    if (model_.has_soft_cap) kinds.emplace_back("soft_cap", text(Words{"tanh"}));
    if (model_.is_encoder()) {
      const SizeRange batch{1, std::max(run_.tokens.high / model_.positions, run_.batch.high)};
      kinds.emplace_back("layout", text(Words{"dense"}));
      return add("all sequences are as long", "attention_forward",
                 attention_axes(text(batch), text(model_.positions), text(model_.positions)), kinds);
    }
    if (model_.is_diffusion) return add_attention_of_images(kinds);
    Axes packed = kinds, paged = kinds;
    packed.emplace_back("layout", text(Words{"packed"}));
    paged.emplace_back("layout", text(Words{"paged"}));
    for (const std::int64_t length : lengths())
      add("prompts: so many tokens in all", "attention_forward",
          attention_axes(text(SizeRange{1, std::min(run_.batch.high, length)}), text(length), text(length)), packed);
    add("the next token of each sequence", "attention_decode",
        attention_axes(text(run_.batch), "1",
                       text(SizeRange{std::min<std::int64_t>(run_.tokens.high, 1024), run_.tokens.high})),
        paged);
  }

  /// One of each bucket of tokens.
  [[nodiscard]] Sizes lengths() const {
    const auto up = [](std::int64_t size) {
      return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(size)));
    };
    Sizes lengths;
    for (std::int64_t length = up(run_.tokens.low); length <= up(run_.tokens.high); length *= 2)
      lengths.push_back(std::min(length, run_.tokens.high));
    return lengths;
  }

  /// Of images or videos, as long in a batch. The tokens of a batch are those of all.
  void add_attention_of_images(Axes kinds) {
    kinds.emplace_back("layout", text(Words{"dense"}));
    for (const std::int64_t length : lengths()) {
      const std::string batch =
          text(SizeRange{1, std::clamp<std::int64_t>(run_.tokens.high / length, 1, run_.batch.high)});
      add("images of so many tokens", "attention_forward", attention_axes(batch, text(length), text(length)), kinds);
      if (model_.text_tokens > 0)
        add("the same, which see the text", "attention_forward",
            attention_axes(batch, text(length), text(model_.text_tokens)), kinds);
    }
  }

  /// Its tokens may be fewer than those of a batch of images.
  void add_text_products() {
    const std::int64_t keys = key_heads_ * model_.head_dim;
    const Axes types{{"layout", text(Words{"nt"})}};
    const auto product = [&](std::int64_t n) {
      add("keys and values of the text", "gemm",
          {{"m", text(SizeRange{model_.text_tokens, model_.text_tokens * run_.batch.high})},
           {"n", text(n)},
           {"k", text(model_.hidden)}},
          types);
    };
    if (separate()) product(keys);
    if (joined()) product(2 * keys);
  }

  void add_feed_forward(std::int64_t intermediate) {
    const Axes in_product{{"activation", text(Words{"swiglu"})}};
    if (!model_.is_gated) {
      Axes activation;
      if (model_.activation != "none") activation.emplace_back("activation", text(Words{"none", model_.activation}));
      add_products("the first product of the feed-forward part", {intermediate}, model_.hidden, activation);
    }
    if (model_.is_gated && separate()) add_products("gate and up, each alone", {intermediate}, model_.hidden);
    if (model_.is_gated && model_.has_swiglu && (separate() || divides_tokens()))
      add("between the products", "swiglu", {{"rows", text(run_.tokens)}, {"cols", text(intermediate)}});
    if (model_.is_gated && joined())
      add_products(
          model_.has_swiglu ? "gate and up in one product, whose columns alternate" : "gate and up in one product",
          {2 * intermediate}, model_.hidden, model_.has_swiglu ? in_product : Axes{});
    add_sums("down", model_.hidden, intermediate);
    if (model_.joins_outputs)
      add_sums("attention output and down in one product", model_.hidden, heads_ * model_.head_dim + intermediate);
  }

  void add_experts() {
    const SizeRange rows{run_.tokens.low * model_.experts_per_token, run_.tokens.high * model_.experts_per_token};
    const auto grouped = [&](const char* comment, std::int64_t n, std::int64_t k, Axes types) {
      types.insert(types.begin(), {"layout", text(Words{"nt"})});
      add(comment, "gemm_grouped",
          {{"m", text(rows)}, {"n", text(n)}, {"k", text(k)}, {"groups", text(model_.experts)}}, types);
    };
    add("which experts take a token", "gemm",
        {{"m", text(run_.tokens)}, {"n", text(model_.experts)}, {"k", text(model_.hidden)}},
        {{"layout", text(Words{"nt"})}});
    if (separate() && model_.has_swiglu) {
      grouped("the experts' gate and up, each alone", intermediate_, model_.hidden, {});
      add("between the experts' products", "swiglu", {{"rows", text(rows)}, {"cols", text(intermediate_)}});
    }
    if (joined() || !model_.has_swiglu)
      grouped("the experts' gate and up in one product", 2 * intermediate_, model_.hidden,
              model_.has_swiglu ? Axes{{"activation", text(Words{"swiglu"})}} : Axes{});
    grouped("the experts' down", model_.hidden, intermediate_, {});
    if (run_.ranks > 1)
      add("the sum of the experts over the ranks", "all_reduce",
          {{"rows", text(run_.tokens)}, {"cols", text(model_.hidden)}, {"world", text(run_.ranks)}},
          {{"ranks", text(Words{"alike"})}});
  }

  /// Of each sequence the last token alone.
  void add_vocabulary() {
    add("the vocabulary, for the tokens that are sampled", "gemm",
        {{"m", text(run_.batch)}, {"n", text(vocabulary_)}, {"k", text(model_.hidden)}},
        {{"layout", text(Words{"nt"})}});
    if (run_.ranks > 1 && vocabulary_ % 8 == 0)  // all_gather takes no other columns
      add("the ranks' parts of the vocabulary", "all_gather",
          {{"rows", text(run_.batch)}, {"cols", text(vocabulary_)}, {"world", text(run_.ranks)}},
          {{"ranks", text(Words{"alike"})}});
  }

  const ModelConfig& model_;
  const ModelRun& run_;
  std::int64_t heads_, key_heads_, intermediate_, shared_intermediate_, vocabulary_;  // of one rank
  std::string text_;
};

}  // namespace

std::string model_workload(const ModelConfig& model, const ModelRun& run) { return ModelWorkload(model, run).make(); }

}  // namespace kiln::cli
