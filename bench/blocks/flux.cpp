// A single-stream block of FLUX.1 over text and image tokens together, without the biases of its linear layers. Shift, scale and gate, which
// the block's modulation makes of a vector, are inputs, as is 1 + scale. The MLP's gelu is the exact one. The first linear layer is four
// products, since queries and keys are normalised by rows of 128, which an op finds at one distance. ops/ has what Kiln lacks: gelu apart
// from a product, and the gate's backward pass.
#include <cmath>

#include "blocks/linear.hpp"

namespace kiln::bench {
namespace {

constexpr std::int64_t hidden = 3072, heads = 24, dim = 128, wide = 12288;
constexpr double norm_epsilon = 1e-6, theta = 10000;
constexpr int text_dim = 16, image_dim = 56;  // of a head: angles by text, by image row, by image column

class Flux : public Block {
 public:
  Flux(const Engine& engine, std::int64_t most_tokens);
  void take(const Batch& batch) override;
  void infer(Stream stream) override;
  void train(Stream stream) override;
  [[nodiscard]] std::vector<Result> results() const override;
  [[nodiscard]] std::int64_t tensor_bytes() const override { return tensors_.bytes(); }

 private:
  /// Queries or keys: their part of the first weight, and what is made of them on the way to attention and back.
  struct Side {
    Bf16 *weight, *d_weight, *norm_weight, *d_norm_weight;
    Bf16 *raw, *turned, *d_turned, *d_raw;
  };

  void attend(Stream stream);  // x_ to modulated_, and attention to joined_
  void forward(Stream stream);
  void backward(Stream stream);
  void attend_backward(Stream stream);  // d_joined_ to d_modulated_ and weights
  void make_side(const Side& side, Stream stream);
  void side_backward(const Side& side, Stream stream);
  void rotate(Bf16* x, std::string_view direction, Stream stream);

  Tensors tensors_;
  std::int64_t tokens_ = 0;

  Op layer_norm_, layer_norm_backward_, rms_norm_, rms_norm_backward_, rotary_, attention_, attention_backward_;
  Op gemm_, gelu_, gate_;
  Linear part_product_, mlp_product_, out_product_;

  int* positions_;
  float *cos_, *sin_, *lse_, *ones_, *gate_values_;
  Bf16 *scale_, *shift_, *gate_weight_, *in_weight_, *out_weight_;
  Bf16 *d_scale_, *d_shift_, *d_gate_, *d_in_weight_, *d_out_weight_;
  Side query_, key_;
  Bf16 *x_, *modulated_, *value_, *mlp_, *joined_, *branch_, *y_;
  Bf16 *dy_, *d_branch_, *d_joined_, *d_mlp_, *d_value_, *d_modulated_, *dx_;
};

constexpr std::int64_t joined_width = hidden + wide, in_width = 3 * hidden + wide;
constexpr std::int64_t value_part = 2 * hidden * hidden, mlp_part = 3 * hidden * hidden;  // of the first weight

Flux::Flux(const Engine& engine, std::int64_t most_tokens)
    : layer_norm_(engine.op("layer_norm")),
      layer_norm_backward_(engine.op("layer_norm_backward")),
      rms_norm_(engine.op("rms_norm")),
      rms_norm_backward_(engine.op("rms_norm_backward")),
      rotary_(engine.op("rotary")),
      attention_(engine.op("attention_forward")),
      attention_backward_(engine.op("attention_backward")),
      gemm_(engine.op("gemm")),
      gelu_(engine.op("gelu")),
      gate_(engine.op("gate")),
      part_product_(engine, hidden, hidden),
      mlp_product_(engine, wide, hidden),
      out_product_(engine, hidden, joined_width) {
  scale_ = tensors_.drawn(hidden, 11, 0.1, 1);
  shift_ = tensors_.drawn(hidden, 12, 0.1);
  const std::vector<Bf16> gate = draw(hidden, 13, 0.1, 1);
  gate_weight_ = tensors_.upload(gate);
  gate_values_ = tensors_.upload(as_floats(gate));
  ones_ = tensors_.upload(std::vector<float>(static_cast<std::size_t>(most_tokens), 1.0F));
  in_weight_ = tensors_.drawn(in_width * hidden, 14, 1 / std::sqrt(static_cast<double>(hidden)));
  out_weight_ = tensors_.drawn(hidden * joined_width, 15, 1 / std::sqrt(static_cast<double>(joined_width)));
  x_ = tensors_.drawn(most_tokens * hidden, 18, 1);
  dy_ = tensors_.drawn(most_tokens * hidden, 19, 1);
  d_in_weight_ = tensors_.empty<Bf16>(in_width * hidden);
  d_out_weight_ = tensors_.empty<Bf16>(hidden * joined_width);
  for (Bf16** each : {&d_scale_, &d_shift_, &d_gate_}) *each = tensors_.empty<Bf16>(hidden);

  const auto tensor = [&](std::int64_t width) { return tensors_.empty<Bf16>(most_tokens * width); };
  const auto side = [&](std::int64_t part, unsigned seed) {
    return Side{in_weight_ + part * hidden * hidden,
                d_in_weight_ + part * hidden * hidden,
                tensors_.drawn(dim, seed, 0.1, 1),
                tensors_.empty<Bf16>(dim),
                tensor(hidden),
                tensor(hidden),
                tensor(hidden),
                tensor(hidden)};
  };
  query_ = side(0, 16);
  key_ = side(1, 17);
  for (Bf16** each : {&modulated_, &value_, &branch_, &y_, &d_branch_, &d_value_, &d_modulated_, &dx_})
    *each = tensor(hidden);
  for (Bf16** each : {&mlp_, &d_mlp_}) *each = tensor(wide);
  for (Bf16** each : {&joined_, &d_joined_}) *each = tensor(joined_width);
  lse_ = tensors_.empty<float>(most_tokens * heads);
  cos_ = tensors_.empty<float>(most_tokens * dim / 2);
  sin_ = tensors_.empty<float>(most_tokens * dim / 2);
  std::vector<int> positions(static_cast<std::size_t>(most_tokens));
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int>(i);
  positions_ = tensors_.upload(positions);
}

/// Text tokens stand at 0; image tokens go row by row through an image that is as near to a square as its width, rounded down, allows.
void Flux::take(const Batch& batch) {
  tokens_ = batch.tokens();
  const int text = batch.lengths.at(0), image = batch.lengths.at(1);
  const int image_width = static_cast<int>(std::sqrt(image));
  Angles angles;
  for (int token = 0; token < text + image; ++token) {
    const int at = token - text;
    const int row = at < 0 ? 0 : at / image_width, col = at < 0 ? 0 : at % image_width;
    for (int i = 0; i < text_dim / 2; ++i) angles.add(0);
    for (const int along : {row, col})
      for (int i = 0; i < image_dim / 2; ++i) angles.add(along * std::pow(theta, -2.0 * i / image_dim));
  }
  Tensors::copy(cos_, angles.cos);
  Tensors::copy(sin_, angles.sin);
}

void Flux::rotate(Bf16* x, std::string_view direction, Stream stream) {
  launch(rotary_,
         {{"tokens", tokens_},
          {"heads", heads},
          {"dim", dim},
          {"rotary_dim", dim},
          {"dtype", "bf16"},
          {"layout", "interleaved"},
          {"direction", direction}},
         {{"x", x}, {"y", x}, {"cos", cos_}, {"sin", sin_}, {"positions", positions_}}, stream);
}

void Flux::make_side(const Side& side, Stream stream) {
  part_product_(tokens_, {modulated_, hidden}, side.weight, {side.raw, hidden}, stream);
  launch(rms_norm_, {{"rows", tokens_ * heads}, {"cols", dim}, {"dtype", "bf16"}},
         {{"x", side.raw}, {"weight", side.norm_weight}, {"y", side.turned}, {"epsilon", norm_epsilon}}, stream);
  rotate(side.turned, "forward", stream);
}

void Flux::attend(Stream stream) {
  launch(layer_norm_, {{"rows", tokens_}, {"cols", hidden}, {"dtype", "bf16"}},
         {{"x", x_}, {"weight", scale_}, {"bias", shift_}, {"y", modulated_}, {"epsilon", norm_epsilon}}, stream);
  make_side(query_, stream);
  make_side(key_, stream);
  part_product_(tokens_, {modulated_, hidden}, in_weight_ + value_part, {value_, hidden}, stream);
  launch(attention_,
         {{"batch", 1},
          {"queries", tokens_},
          {"keys", tokens_},
          {"heads", heads},
          {"key_heads", heads},
          {"head_dim", dim},
          {"value_dim", dim},
          {"dtype", "bf16"}},
         {{"q", query_.turned},
          {"k", key_.turned},
          {"v", value_},
          {"out", joined_},
          {"out_row_stride", joined_width},
          {"lse", lse_}},
         stream);
}

/// The gate and the residual are the last product's ending: a scale for each column of y, and for each row 1.
void Flux::infer(Stream stream) {
  attend(stream);
  mlp_product_.activated("gelu", tokens_, {modulated_, hidden}, in_weight_ + mlp_part, {joined_ + hidden, joined_width},
                         stream);
  launch(gemm_,
         {{"m", tokens_},
          {"n", hidden},
          {"k", joined_width},
          {"dtype", "bf16"},
          {"layout", "nt"},
          {"residual", "add"},
          {"scaling", "row"}},
         {{"x", joined_},
          {"w", out_weight_},
          {"y", y_},
          {"residual_in", x_},
          {"x_scale", ones_},
          {"w_scale", gate_values_}},
         stream);
}

void Flux::train(Stream stream) {
  forward(stream);
  backward(stream);
}

void Flux::forward(Stream stream) {
  attend(stream);
  mlp_product_(tokens_, {modulated_, hidden}, in_weight_ + mlp_part, {mlp_, wide}, stream);
  launch(gelu_, {{"rows", tokens_}, {"cols", wide}, {"dtype", "bf16"}},
         {{"x", mlp_}, {"y", joined_ + hidden}, {"y_row_stride", joined_width}}, stream);
  out_product_(tokens_, {joined_, joined_width}, out_weight_, {branch_, hidden}, stream);
  launch(gate_, {{"rows", tokens_}, {"cols", hidden}, {"dtype", "bf16"}},
         {{"gate", gate_weight_}, {"out", branch_}, {"x", x_}, {"y", y_}}, stream);
}

void Flux::backward(Stream stream) {
  launch(gate_, {{"rows", tokens_}, {"cols", hidden}, {"dtype", "bf16"}, {"direction", "backward"}},
         {{"gate", gate_weight_}, {"out", branch_}, {"dy", dy_}, {"dout", d_branch_}, {"dgate", d_gate_}}, stream);
  out_product_.input_gradient(tokens_, {d_branch_, hidden}, out_weight_, {d_joined_, joined_width}, stream);
  out_product_.weight_gradient(tokens_, {d_branch_, hidden}, {joined_, joined_width}, d_out_weight_, stream);
  launch(gelu_, {{"rows", tokens_}, {"cols", wide}, {"dtype", "bf16"}, {"direction", "backward"}},
         {{"x", mlp_}, {"dy", d_joined_ + hidden}, {"dy_row_stride", joined_width}, {"y", d_mlp_}}, stream);
  mlp_product_.input_gradient(tokens_, {d_mlp_, wide}, in_weight_ + mlp_part, {d_modulated_, hidden}, stream);
  mlp_product_.weight_gradient(tokens_, {d_mlp_, wide}, {modulated_, hidden}, d_in_weight_ + mlp_part, stream);
  attend_backward(stream);
  launch(layer_norm_backward_, {{"rows", tokens_}, {"cols", hidden}, {"dtype", "bf16"}, {"residual", "add"}},
         {{"x", x_},
          {"weight", scale_},
          {"dy", d_modulated_},
          {"d_sum", dy_},
          {"dx", dx_},
          {"dweight", d_scale_},
          {"dbias", d_shift_},
          {"epsilon", norm_epsilon}},
         stream);
}

void Flux::attend_backward(Stream stream) {
  launch(attention_backward_,
         {{"batch", 1},
          {"queries", tokens_},
          {"keys", tokens_},
          {"heads", heads},
          {"key_heads", heads},
          {"head_dim", dim},
          {"value_dim", dim},
          {"dtype", "bf16"}},
         {{"q", query_.turned},
          {"k", key_.turned},
          {"v", value_},
          {"out", joined_},
          {"dout", d_joined_},
          {"out_row_stride", joined_width},
          {"lse", lse_},
          {"dq", query_.d_turned},
          {"dk", key_.d_turned},
          {"dv", d_value_}},
         stream);
  side_backward(query_, stream);
  side_backward(key_, stream);
  part_product_.input_gradient(tokens_, {d_value_, hidden}, in_weight_ + value_part, {d_modulated_, hidden}, stream,
                               "yes");
  part_product_.weight_gradient(tokens_, {d_value_, hidden}, {modulated_, hidden}, d_in_weight_ + value_part, stream);
}

/// Added to d_modulated_.
void Flux::side_backward(const Side& side, Stream stream) {
  rotate(side.d_turned, "backward", stream);
  launch(rms_norm_backward_, {{"rows", tokens_ * heads}, {"cols", dim}, {"dtype", "bf16"}},
         {{"x", side.raw},
          {"weight", side.norm_weight},
          {"dy", side.d_turned},
          {"dx", side.d_raw},
          {"dweight", side.d_norm_weight},
          {"epsilon", norm_epsilon}},
         stream);
  part_product_.input_gradient(tokens_, {side.d_raw, hidden}, side.weight, {d_modulated_, hidden}, stream, "yes");
  part_product_.weight_gradient(tokens_, {side.d_raw, hidden}, {modulated_, hidden}, side.d_weight, stream);
}

std::vector<Result> Flux::results() const {
  return {{"y", y_, tokens_ * hidden},
          {"x", dx_, tokens_ * hidden},
          {"scale", d_scale_, hidden},
          {"shift", d_shift_, hidden},
          {"gate", d_gate_, hidden},
          {"query_norm", query_.d_norm_weight, dim},
          {"key_norm", key_.d_norm_weight, dim},
          {"linear1", d_in_weight_, in_width * hidden},
          {"linear2", d_out_weight_, hidden * joined_width}};
}

}  // namespace

std::unique_ptr<Block> make_flux(const Engine& engine, std::int64_t most_tokens) {
  return std::make_unique<Flux>(engine, most_tokens);
}

}  // namespace kiln::bench
