// A block of Llama 3 8B over packed sequences. Inference computes gate and up as one product whose ending is SwiGLU, from weights whose rows
// are interleaved once; training keeps gate and up, so SwiGLU is an op of its own there.
#include <algorithm>
#include <cmath>

#include "blocks/linear.hpp"

namespace kiln::bench {
namespace {

constexpr std::int64_t hidden = 4096, heads = 32, key_heads = 8, dim = 128, wide = 14336;
constexpr std::int64_t queries = heads * dim, keys = key_heads * dim, qkv_width = queries + 2 * keys;
constexpr std::int64_t most_sequences =
    8;  // the batch axis is always this one bucket: sequences that are missing are empty
constexpr double epsilon = 1e-5, theta = 500000;

class Llama : public Block {
 public:
  Llama(const Engine& engine, std::int64_t most_tokens);
  void take(const Batch& batch) override;
  void infer(Stream stream) override;
  void train(Stream stream) override;
  [[nodiscard]] std::vector<Result> results() const override;
  [[nodiscard]] std::int64_t tensor_bytes() const override { return tensors_.bytes(); }

 private:
  void attend(Stream stream);  // x_, normalised, to middle_, the sum after attention
  void forward(Stream stream);
  void backward(Stream stream);
  void attend_backward(Stream stream);  // d_middle_ to dx_
  void normalise(const Bf16* x, const Bf16* weight, Bf16* y, Stream stream);
  void rotate(Bf16* qkv, std::string_view direction, Stream stream);

  Tensors tensors_;
  std::int64_t tokens_ = 0, longest_ = 0;

  Op rms_norm_, rms_norm_backward_, rotary_, attention_, attention_backward_, swiglu_, swiglu_backward_;
  Linear qkv_product_, out_product_, gate_up_product_, down_product_;

  int *offsets_, *positions_;
  float *cos_, *sin_;
  Bf16 *norm_weight_, *qkv_weight_, *out_weight_, *mlp_norm_weight_, *gate_up_weight_, *gate_up_interleaved_,
      *down_weight_;
  Bf16 *d_norm_weight_, *d_qkv_weight_, *d_out_weight_, *d_mlp_norm_weight_, *d_gate_up_weight_, *d_down_weight_;
  Bf16 *x_, *normed_, *qkv_, *attended_, *middle_, *mlp_normed_, *gate_up_, *product_, *y_;
  float* lse_;
  Bf16 *dy_, *d_product_, *d_gate_up_, *d_hidden_, *d_middle_, *d_qkv_, *dx_;
};

/// Rows of gate and up in turns: what swiglu as gemm's activation joins.
std::vector<Bf16> interleaved(const std::vector<Bf16>& gate_up) {
  std::vector<Bf16> rows(gate_up.size());
  const auto half = static_cast<std::ptrdiff_t>(gate_up.size() / 2);
  for (std::ptrdiff_t row = 0; row < wide; ++row) {
    const auto gate = gate_up.begin() + row * hidden;
    std::copy_n(gate, hidden, rows.begin() + 2 * row * hidden);
    std::copy_n(gate + half, hidden, rows.begin() + (2 * row + 1) * hidden);
  }
  return rows;
}

Llama::Llama(const Engine& engine, std::int64_t most_tokens)
    : rms_norm_(engine.op("rms_norm")),
      rms_norm_backward_(engine.op("rms_norm_backward")),
      rotary_(engine.op("rotary")),
      attention_(engine.op("attention_forward")),
      attention_backward_(engine.op("attention_backward")),
      swiglu_(engine.op("swiglu")),
      swiglu_backward_(engine.op("swiglu_backward")),
      qkv_product_(engine, qkv_width, hidden),
      out_product_(engine, hidden, queries),
      gate_up_product_(engine, 2 * wide, hidden),
      down_product_(engine, hidden, wide) {
  const auto tensor = [&](std::int64_t width) { return tensors_.empty<Bf16>(most_tokens * width); };
  const auto weight = [&](Bf16*& gradient, std::int64_t outputs, std::int64_t inputs, unsigned seed) {
    gradient = tensors_.empty<Bf16>(outputs * inputs);
    return tensors_.drawn(outputs * inputs, seed, 1 / std::sqrt(static_cast<double>(inputs)));
  };
  const auto norm_weight = [&](Bf16*& gradient, unsigned seed) {
    gradient = tensors_.empty<Bf16>(hidden);
    return tensors_.drawn(hidden, seed, 0.1, 1);
  };
  norm_weight_ = norm_weight(d_norm_weight_, 1);
  qkv_weight_ = weight(d_qkv_weight_, qkv_width, hidden, 2);
  out_weight_ = weight(d_out_weight_, hidden, queries, 3);
  mlp_norm_weight_ = norm_weight(d_mlp_norm_weight_, 4);
  const std::vector<Bf16> gate_up = draw(2 * wide * hidden, 5, 1 / std::sqrt(static_cast<double>(hidden)));
  gate_up_weight_ = tensors_.upload(gate_up);
  gate_up_interleaved_ = tensors_.upload(interleaved(gate_up));
  d_gate_up_weight_ = tensors_.empty<Bf16>(2 * wide * hidden);
  down_weight_ = weight(d_down_weight_, hidden, wide, 6);
  x_ = tensors_.drawn(most_tokens * hidden, 7, 1);
  dy_ = tensors_.drawn(most_tokens * hidden, 8, 1);

  for (Bf16** each : {&normed_, &attended_, &middle_, &mlp_normed_, &y_, &d_hidden_, &d_middle_, &dx_})
    *each = tensor(hidden);
  for (Bf16** each : {&qkv_, &d_qkv_}) *each = tensor(qkv_width);
  for (Bf16** each : {&gate_up_, &d_gate_up_}) *each = tensor(2 * wide);
  for (Bf16** each : {&product_, &d_product_}) *each = tensor(wide);
  lse_ = tensors_.empty<float>(most_tokens * heads);

  offsets_ = tensors_.empty<int>(most_sequences + 1);
  positions_ = tensors_.empty<int>(most_tokens);
  Angles angles;
  for (std::int64_t position = 0; position < most_tokens; ++position)
    for (int i = 0; i < dim / 2; ++i)
      angles.add(static_cast<double>(position) * std::pow(theta, -2.0 * i / static_cast<double>(dim)));
  cos_ = tensors_.upload(angles.cos);
  sin_ = tensors_.upload(angles.sin);
}

void Llama::take(const Batch& batch) {
  if (batch.lengths.size() > most_sequences)
    throw Error(ErrorKind::bad_input, "a batch of more than 8 sequences; raise most_sequences");
  tokens_ = batch.tokens();
  longest_ = batch.longest();
  std::vector<int> offsets{0}, positions;
  for (const int length : batch.lengths) {
    offsets.push_back(offsets.back() + length);
    for (int i = 0; i < length; ++i) positions.push_back(i);
  }
  offsets.resize(most_sequences + 1, offsets.back());
  Tensors::copy(offsets_, offsets);
  Tensors::copy(positions_, positions);
}

void Llama::normalise(const Bf16* x, const Bf16* weight, Bf16* y, Stream stream) {
  launch(rms_norm_, {{"rows", tokens_}, {"cols", hidden}, {"dtype", "bf16"}},
         {{"x", x}, {"weight", weight}, {"y", y}, {"epsilon", epsilon}}, stream);
}

/// Queries and keys, which lie side by side, in place.
void Llama::rotate(Bf16* qkv, std::string_view direction, Stream stream) {
  launch(rotary_,
         {{"tokens", tokens_},
          {"heads", heads + key_heads},
          {"dim", dim},
          {"rotary_dim", dim},
          {"dtype", "bf16"},
          {"direction", direction}},
         {{"x", qkv},
          {"y", qkv},
          {"cos", cos_},
          {"sin", sin_},
          {"positions", positions_},
          {"x_token_stride", qkv_width},
          {"y_token_stride", qkv_width}},
         stream);
}

void Llama::attend(Stream stream) {
  normalise(x_, norm_weight_, normed_, stream);
  qkv_product_(tokens_, {normed_, hidden}, qkv_weight_, {qkv_, qkv_width}, stream);
  rotate(qkv_, "forward", stream);
  launch(attention_,
         {{"batch", most_sequences},
          {"queries", tokens_},
          {"keys", tokens_},
          {"heads", heads},
          {"key_heads", key_heads},
          {"head_dim", dim},
          {"value_dim", dim},
          {"dtype", "bf16"},
          {"layout", "packed"},
          {"mask", "causal"}},
         {{"q", qkv_},
          {"k", qkv_ + queries},
          {"v", qkv_ + queries + keys},
          {"q_row_stride", qkv_width},
          {"k_row_stride", qkv_width},
          {"v_row_stride", qkv_width},
          {"out", attended_},
          {"lse", lse_},
          {"query_offsets", offsets_},
          {"key_offsets", offsets_},
          {"longest_query", longest_}},
         stream);
  out_product_.add(tokens_, {attended_, queries}, out_weight_, x_, middle_, stream);
}

void Llama::infer(Stream stream) {
  attend(stream);
  normalise(middle_, mlp_norm_weight_, mlp_normed_, stream);
  gate_up_product_.activated("swiglu", tokens_, {mlp_normed_, hidden}, gate_up_interleaved_, {product_, wide}, stream);
  down_product_.add(tokens_, {product_, wide}, down_weight_, middle_, y_, stream);
}

void Llama::train(Stream stream) {
  forward(stream);
  backward(stream);
}

void Llama::forward(Stream stream) {
  attend(stream);
  normalise(middle_, mlp_norm_weight_, mlp_normed_, stream);
  gate_up_product_(tokens_, {mlp_normed_, hidden}, gate_up_weight_, {gate_up_, 2 * wide}, stream);
  launch(swiglu_, {{"rows", tokens_}, {"cols", wide}, {"dtype", "bf16"}},
         {{"gate", gate_up_},
          {"up", gate_up_ + wide},
          {"gate_row_stride", 2 * wide},
          {"up_row_stride", 2 * wide},
          {"y", product_}},
         stream);
  down_product_.add(tokens_, {product_, wide}, down_weight_, middle_, y_, stream);
}

void Llama::backward(Stream stream) {
  down_product_.input_gradient(tokens_, {dy_, hidden}, down_weight_, {d_product_, wide}, stream);
  down_product_.weight_gradient(tokens_, {dy_, hidden}, {product_, wide}, d_down_weight_, stream);
  launch(swiglu_backward_, {{"rows", tokens_}, {"cols", wide}, {"dtype", "bf16"}},
         {{"gate", gate_up_},
          {"up", gate_up_ + wide},
          {"gate_row_stride", 2 * wide},
          {"up_row_stride", 2 * wide},
          {"dy", d_product_},
          {"dgate", d_gate_up_},
          {"dup", d_gate_up_ + wide},
          {"dgate_row_stride", 2 * wide},
          {"dup_row_stride", 2 * wide}},
         stream);
  gate_up_product_.input_gradient(tokens_, {d_gate_up_, 2 * wide}, gate_up_weight_, {d_hidden_, hidden}, stream);
  gate_up_product_.weight_gradient(tokens_, {d_gate_up_, 2 * wide}, {mlp_normed_, hidden}, d_gate_up_weight_, stream);
  launch(rms_norm_backward_, {{"rows", tokens_}, {"cols", hidden}, {"dtype", "bf16"}, {"residual", "add"}},
         {{"x", middle_},
          {"weight", mlp_norm_weight_},
          {"dy", d_hidden_},
          {"d_sum", dy_},
          {"dx", d_middle_},
          {"dweight", d_mlp_norm_weight_},
          {"epsilon", epsilon}},
         stream);
  attend_backward(stream);
}

void Llama::attend_backward(Stream stream) {
  out_product_.input_gradient(tokens_, {d_middle_, hidden}, out_weight_, {d_hidden_, queries}, stream);
  out_product_.weight_gradient(tokens_, {d_middle_, hidden}, {attended_, queries}, d_out_weight_, stream);
  launch(attention_backward_,
         {{"batch", most_sequences},
          {"queries", tokens_},
          {"keys", tokens_},
          {"heads", heads},
          {"key_heads", key_heads},
          {"head_dim", dim},
          {"value_dim", dim},
          {"dtype", "bf16"},
          {"layout", "packed"},
          {"mask", "causal"}},
         {{"q", qkv_},
          {"k", qkv_ + queries},
          {"v", qkv_ + queries + keys},
          {"q_row_stride", qkv_width},
          {"k_row_stride", qkv_width},
          {"v_row_stride", qkv_width},
          {"out", attended_},
          {"lse", lse_},
          {"dout", d_hidden_},
          {"query_offsets", offsets_},
          {"key_offsets", offsets_},
          {"dq", d_qkv_},
          {"dk", d_qkv_ + queries},
          {"dv", d_qkv_ + queries + keys}},
         stream);
  rotate(d_qkv_, "backward", stream);
  qkv_product_.input_gradient(tokens_, {d_qkv_, qkv_width}, qkv_weight_, {d_hidden_, hidden}, stream);
  qkv_product_.weight_gradient(tokens_, {d_qkv_, qkv_width}, {normed_, hidden}, d_qkv_weight_, stream);
  launch(rms_norm_backward_, {{"rows", tokens_}, {"cols", hidden}, {"dtype", "bf16"}, {"residual", "add"}},
         {{"x", x_},
          {"weight", norm_weight_},
          {"dy", d_hidden_},
          {"d_sum", d_middle_},
          {"dx", dx_},
          {"dweight", d_norm_weight_},
          {"epsilon", epsilon}},
         stream);
}

std::vector<Result> Llama::results() const {
  return {{"y", y_, tokens_ * hidden},
          {"x", dx_, tokens_ * hidden},
          {"norm", d_norm_weight_, hidden},
          {"qkv", d_qkv_weight_, qkv_width * hidden},
          {"out", d_out_weight_, hidden * queries},
          {"mlp_norm", d_mlp_norm_weight_, hidden},
          {"gate_up", d_gate_up_weight_, 2 * wide * hidden},
          {"down", d_down_weight_, hidden * wide}};
}

}  // namespace

std::unique_ptr<Block> make_llama(const Engine& engine, std::int64_t most_tokens) {
  return std::make_unique<Llama>(engine, most_tokens);
}

}  // namespace kiln::bench
