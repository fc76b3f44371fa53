// Reads the configuration of a Hugging Face model (config.json), or of a diffusers transformer: the sizes that its
// layers compute with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::cli {

/// One layer stack of a model. A size of 0 is one that the model does not have.
struct ModelConfig {
  std::string type;   // "llama"
  std::string dtype;  // "bf16" or "f16"
  std::int64_t hidden = 0, heads = 0, key_heads = 0, head_dim = 0, intermediate = 0, vocabulary = 0;
  std::int64_t rotary_dim = 0;                      // elements of a head that are turned
  std::int64_t experts = 0, experts_per_token = 0;  // `intermediate` is one expert's
  std::int64_t shared_intermediate = 0;             // of an expert, or of some layers, that all tokens take
  std::int64_t positions = 0;                       // tokens of a sequence, where all have as many: encoders
  std::int64_t text_tokens = 0;                     // that cross attention sees
  std::string norm = "rms_norm";                    // or layer_norm
  std::vector<std::string> masks{"causal"};         // of attention_forward: those of all layers
  std::int64_t window = 0;                          // keys that a query sees in layers with a window, its own included
  bool has_head_norms = false;                      // of queries and keys, head by head
  bool has_row_norms = false;                       // the same over all heads of a token
  bool is_gated = true;                             // gate and up, else one product
  bool has_swiglu = true;                           // gated by silu, as the op swiglu and the product's activation
  bool has_gate_bias = false;                       // gate and up have biases
  std::string activation = "none";                  // of the product that is not gated
  bool has_sinks = false, has_soft_cap = false;     // of attention
  bool adds_before_norm = true;                     // a norm takes the residual in
  bool is_diffusion = false;                        // sequences of a batch are as long, and see themselves whole
  bool joins_outputs = false;                       // one product for attention's output and down, in some layers
  [[nodiscard]] bool is_encoder() const noexcept { return positions > 0; }
  [[nodiscard]] bool has_cache() const noexcept { return !is_encoder() && !is_diffusion; }  // of keys and values
};

/// Parses config.json. `name` is for messages. Throws Error(bad_input) that names the key which is missing or of
/// another kind, for a "model_type", or "_class_name", that is not known, with those that are, and for weights that are
/// quantised or of a type that the ops of a layer do not take.
ModelConfig parse_model_config(std::string_view text, const std::string& name);

}  // namespace kiln::cli
