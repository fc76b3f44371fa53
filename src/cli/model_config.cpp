#include "cli/model_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "kiln/error.hpp"
#include "manifest/text.hpp"

namespace kiln::cli {
namespace {

using nlohmann::json;

constexpr std::int64_t largest_size = std::int64_t{1} << 31;

class ConfigReader {
 public:
  ConfigReader(const json& config, std::string name, std::string type)
      : config_(config), name_(std::move(name)), type_(std::move(type)) {}

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(ErrorKind::bad_input, fmt::format("{}: {}", name_, message));
  }

  [[nodiscard]] const json* find(const char* key) const {
    const auto found = config_.find(key);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }

  /// A size under the first of these keys that is there.
  [[nodiscard]] std::int64_t size(std::initializer_list<const char*> keys) const {
    for (const char* key : keys)
      if (const json* value = find(key)) return checked(key, *value);
    fail(fmt::format("a model of type {} needs the key \"{}\", which is missing", manifest::quote(type_),
                     *keys.begin()));
  }
  [[nodiscard]] std::int64_t size_or(const char* key, std::int64_t otherwise) const {
    const json* value = find(key);
    return value == nullptr ? otherwise : checked(key, *value);
  }
  [[nodiscard]] std::string word_or(std::initializer_list<const char*> keys, const std::string& otherwise) const {
    for (const char* key : keys)
      if (const json* value = find(key)) {
        if (!value->is_string()) fail(fmt::format("\"{}\" is {}, expected text", key, shown(*value)));
        return value->get<std::string>();
      }
    return otherwise;
  }
  [[nodiscard]] double number_or(const char* key, double otherwise) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) fail(fmt::format("\"{}\" is {}, expected a number", key, shown(*value)));
    return value->get<double>();
  }
  [[nodiscard]] bool flag_or(const char* key, bool otherwise) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) fail(fmt::format("\"{}\" is {}, expected true or false", key, shown(*value)));
    return value->get<bool>();
  }

 private:
  static std::string shown(const json& value) {
    return manifest::quote(value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 40));
  }
  [[nodiscard]] std::int64_t checked(const char* key, const json& value) const {
    if (value.is_number_integer() && value >= 1 && value <= largest_size) return value.get<std::int64_t>();
    fail(fmt::format("\"{}\" is {}, expected a whole number from 1 to {}", key, shown(value), largest_size));
  }

  const json& config_;
  std::string name_, type_;
};

/// Models of float32 weights are run in bf16, since attention takes no f32.
std::string dtype_of(const ConfigReader& config) {
  const std::string dtype = config.word_or({"dtype", "torch_dtype"}, "bfloat16");
  if (dtype == "bfloat16" || dtype == "float32") return "bf16";
  if (dtype == "float16") return "f16";
  config.fail(
      fmt::format("\"{}\" is {}, expected bfloat16, float16 or float32; change it in a copy of the file to "
                  "write the products of such weights",
                  config.find("dtype") != nullptr ? "dtype" : "torch_dtype", manifest::quote(dtype)));
}

/// The products of quantised weights are other problems than those of 16-bit weights.
void refuse_quantised(const ConfigReader& config) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    const json* const found = config.find(key);
    if (found == nullptr) continue;
    const auto method = found->is_object() ? found->find("quant_method") : found->end();
    const bool is_named = found->is_object() && method != found->end() && method->is_string();
    const std::string name = is_named ? " by " + manifest::quote(method->get<std::string>()) : "";
    config.fail(fmt::format(
        "\"{}\" says that the weights are quantised{}, and kiln workload writes products of 16-bit weights alone; "
        "remove the key from a copy of the file to write those of the model that is not quantised{}",
        key, name,
        is_named && *method == "fp8" ? ", or write the e4m3 products by hand, which \"kiln ops gemm\" lists" : ""));
  }
}

void read_heads(const ConfigReader& config, ModelConfig& model) {
  model.heads = config.size({"num_attention_heads"});
  model.key_heads = config.size_or("num_key_value_heads", model.heads);
  if (model.heads % model.key_heads != 0)
    config.fail(fmt::format("\"num_attention_heads\" is {}, which is no multiple of \"num_key_value_heads\", {}",
                            model.heads, model.key_heads));
  model.head_dim = config.size_or("head_dim", model.hidden / model.heads);
  if (model.head_dim == 0)
    config.fail(
        fmt::format("\"hidden_size\" is {}, fewer than \"num_attention_heads\", {}", model.hidden, model.heads));
}

/// Which layers have a window, as transformers decides it: by "layer_types", else those of Qwen2 and Qwen3 from
/// "max_window_layers" on, all of Mistral's, and some of other models.
std::vector<std::string> masks_of(const ConfigReader& config, const std::string& type) {
  const std::vector<std::string> none{"causal"}, all{"window"}, some{"causal", "window"};
  const json* const layers = config.find("layer_types");
  if (layers != nullptr && layers->is_array()) {
    const auto has = [&](const char* word) { return std::find(layers->begin(), layers->end(), word) != layers->end(); };
    return !has("sliding_attention") ? none : has("full_attention") ? some : all;
  }
  if (type == "qwen2" || type == "qwen3") {
    const auto full = config.number_or("max_window_layers", 28);
    const auto count = static_cast<double>(config.size_or("num_hidden_layers", 32));
    return full >= count ? none : full <= 0 ? all : some;
  }
  return type == "mistral" && config.find("sliding_window_pattern") == nullptr ? all : some;
}

/// Layers have a window where the configuration names one and does not switch it off. Qwen's has to switch it on.
void read_window(const ConfigReader& config, ModelConfig& model) {
  if (config.find("sliding_window") == nullptr ||
      !config.flag_or("use_sliding_window", !model.type.starts_with("qwen")))
    return;
  model.masks = masks_of(config, model.type);
  if (model.masks.back() == "window") model.window = config.size({"sliding_window"});
}

ModelConfig read_decoder(const ConfigReader& config, const std::string& type) {
  ModelConfig model;
  model.type = type;
  model.dtype = dtype_of(config);
  model.hidden = config.size({"hidden_size"});
  model.vocabulary = config.size({"vocab_size"});
  read_heads(config, model);
  const double turned = config.number_or("partial_rotary_factor", 1);
  if (!(turned > 0 && turned <= 1)) config.fail("\"partial_rotary_factor\" is not over 0 and up to 1");
  model.rotary_dim = 2 * static_cast<std::int64_t>(static_cast<double>(model.head_dim) * turned / 2);
  read_window(config, model);
  model.has_soft_cap = config.find("attn_logit_softcapping") != nullptr;
  const std::string act = config.word_or({"hidden_act", "hidden_activation"}, "silu");
  model.has_swiglu = act == "silu" || act == "swish";
  return model;
}

ModelConfig read_dense(const ConfigReader& config, const std::string& type) {
  ModelConfig model = read_decoder(config, type);
  model.intermediate = config.size({"intermediate_size"});
  model.has_gate_bias = config.flag_or("mlp_bias", false);
  return model;
}

ModelConfig read_with_head_norms(const ConfigReader& config, const std::string& type) {
  ModelConfig model = read_dense(config, type);
  model.has_head_norms = true;
  return model;
}

/// Gemma's norms of a sublayer's output come before its sum with the residual.
ModelConfig read_gemma(const ConfigReader& config, const std::string& type) {
  ModelConfig model = read_dense(config, type);
  model.has_head_norms = type.starts_with("gemma3");
  model.has_swiglu = false;
  model.adds_before_norm = type == "gemma";
  return model;
}

/// Phi-1 and Phi-2: attention and feed-forward part side by side, after one layer_norm.
ModelConfig read_phi(const ConfigReader& config, const std::string& type) {
  ModelConfig model = read_dense(config, type);
  model.norm = "layer_norm";
  model.is_gated = model.has_swiglu = model.adds_before_norm = false;
  return model;
}

ModelConfig read_mixtral(const ConfigReader& config, const std::string& type) {
  ModelConfig model = read_dense(config, type);
  model.experts = config.size({"num_local_experts"});
  model.experts_per_token = config.size({"num_experts_per_tok"});
  return model;
}

/// Its gate is clamped and scaled, and not the op swiglu.
ModelConfig read_gpt_oss(const ConfigReader& config, const std::string& type) {
  ModelConfig model = read_mixtral(config, type);
  model.has_sinks = true;
  model.has_swiglu = false;
  return model;
}

ModelConfig read_qwen_moe(const ConfigReader& config, const std::string& type) {
  ModelConfig model = read_decoder(config, type);
  model.has_head_norms = type == "qwen3_moe";
  model.intermediate = config.size({"moe_intermediate_size"});
  model.experts = config.size({"num_experts"});
  model.experts_per_token = config.size({"num_experts_per_tok"});
  model.shared_intermediate = config.size_or("shared_expert_intermediate_size", 0);
  return model;
}

/// The gelu of the op is the exact one; of others the activation is no part of the product.
std::string product_activation(const std::string& word) {
  return word == "gelu" ? "gelu" : word == "relu" ? "relu" : word == "silu" ? "silu" : "none";
}

ModelConfig encoder(const ConfigReader& config, const std::string& type, const char* act_key, const char* act) {
  ModelConfig model;
  model.type = type;
  model.dtype = dtype_of(config);
  model.norm = "layer_norm";
  model.masks = {"none"};
  model.is_gated = model.has_swiglu = false;
  model.activation = product_activation(config.word_or({act_key}, act));
  return model;
}

ModelConfig read_vision(const ConfigReader& config, const std::string& type) {
  const bool is_siglip = type.starts_with("siglip");
  ModelConfig model = encoder(config, type, "hidden_act", is_siglip ? "gelu_pytorch_tanh" : "gelu");
  model.hidden = config.size({"hidden_size"});
  model.intermediate = config.size({"intermediate_size"});
  read_heads(config, model);
  const std::int64_t image = config.size({"image_size"}), patch = config.size({"patch_size"});
  if (patch > image) config.fail("\"patch_size\" is more than \"image_size\"");
  model.positions = (image / patch) * (image / patch) + (is_siglip ? 0 : 1);  // ViT and CLIP add a class token
  return model;
}

ModelConfig read_whisper(const ConfigReader& config, const std::string& type) {
  ModelConfig model = encoder(config, type, "activation_function", "gelu");
  model.hidden = config.size({"d_model"});
  model.intermediate = config.size({"encoder_ffn_dim"});
  model.heads = model.key_heads = config.size({"encoder_attention_heads"});
  model.head_dim = model.hidden / model.heads;
  if (model.head_dim == 0) config.fail("\"d_model\" is less than \"encoder_attention_heads\"");
  model.positions = config.size({"max_source_positions"});
  return model;
}

/// The transformer of a diffusers pipeline. Sums with residuals have gates, so no norm takes one in.
ModelConfig read_diffusion(const ConfigReader& config, const std::string& type) {
  ModelConfig model;
  model.type = type;
  model.dtype = dtype_of(config);
  model.heads = model.key_heads = config.size({"num_attention_heads"});
  model.head_dim = model.rotary_dim = config.size({"attention_head_dim"});
  model.hidden = model.heads * model.head_dim;
  model.norm = "layer_norm";
  model.masks = {"none"};
  model.is_gated = model.has_swiglu = model.adds_before_norm = false;
  model.is_diffusion = true;
  return model;
}

/// Text and image attend in one sequence. The feed-forward part is four times as wide (diffusers,
/// FluxSingleTransformerBlock).
ModelConfig read_flux(const ConfigReader& config, const std::string& type) {
  ModelConfig model = read_diffusion(config, type);
  model.intermediate = 4 * model.hidden;
  model.has_head_norms = model.joins_outputs = true;
  return model;
}

/// Its pipeline pads texts to 512 tokens.
ModelConfig read_wan(const ConfigReader& config, const std::string& type) {
  ModelConfig model = read_diffusion(config, type);
  model.intermediate = config.size({"ffn_dim"});
  model.has_row_norms = true;
  model.text_tokens = 512;
  return model;
}

/// What the configurations of Gemma 3 leave out (transformers, Gemma3TextConfig).
const json& gemma3_defaults() {
  static const auto& defaults =
      *new json{{"vocab_size", 262208}, {"num_attention_heads", 8}, {"num_key_value_heads", 4}, {"head_dim", 256}};
  return defaults;
}

struct KnownModel {
  const char* type;
  const char* part;  // the key of the configuration that counts; null: the file itself
  ModelConfig (*read)(const ConfigReader&, const std::string&);
};
constexpr std::array known_models{KnownModel{"llama", nullptr, read_dense},
                                  KnownModel{"mistral", nullptr, read_dense},
                                  KnownModel{"qwen2", nullptr, read_dense},
                                  KnownModel{"qwen3", nullptr, read_with_head_norms},
                                  KnownModel{"qwen2_moe", nullptr, read_qwen_moe},
                                  KnownModel{"qwen3_moe", nullptr, read_qwen_moe},
                                  KnownModel{"gemma", nullptr, read_gemma},
                                  KnownModel{"gemma2", nullptr, read_gemma},
                                  KnownModel{"gemma3_text", nullptr, read_gemma},
                                  KnownModel{"gemma3", "text_config", read_gemma},
                                  KnownModel{"phi", nullptr, read_phi},
                                  KnownModel{"phi3", nullptr, read_dense},
                                  KnownModel{"mixtral", nullptr, read_mixtral},
                                  KnownModel{"gpt_oss", nullptr, read_gpt_oss},
                                  KnownModel{"vit", nullptr, read_vision},
                                  KnownModel{"clip_vision_model", nullptr, read_vision},
                                  KnownModel{"siglip_vision_model", nullptr, read_vision},
                                  KnownModel{"siglip", "vision_config", read_vision},
                                  KnownModel{"whisper", nullptr, read_whisper},
                                  KnownModel{"FluxTransformer2DModel", nullptr, read_flux},
                                  KnownModel{"WanTransformer3DModel", nullptr, read_wan}};

const KnownModel& known_model(const ConfigReader& config, const char* key, const std::string& type) {
  std::vector<std::string> types;
  for (const KnownModel& each : known_models) {
    if (type == each.type) return each;
    types.emplace_back(each.type);
  }
  config.fail(fmt::format("\"{}\" is {}, which kiln workload does not know{}; it knows: {}", key, manifest::quote(type),
                          manifest::did_you_mean(type, types), fmt::join(types, ", ")));
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, const std::string& name) {
  const json config = json::parse(text, nullptr, false);
  const ConfigReader file(config, name, "");
  if (!config.is_object()) file.fail("no JSON object, expected the config.json of a Hugging Face model");
  const char* const key = file.find("model_type") == nullptr && file.find("_class_name") != nullptr
                              ? "_class_name"  // of diffusers
                              : "model_type";
  const std::string type = file.word_or({key}, "");
  if (type.empty()) file.fail("the key \"model_type\" is missing, which says how the others are read");
  const KnownModel& reading = known_model(file, key, type);
  refuse_quantised(file);
  if (reading.part == nullptr) return reading.read(ConfigReader(config, name, type), type);
  const json* found = file.find(reading.part);
  if (found == nullptr || !found->is_object())
    file.fail(fmt::format("a model of type {} needs the table \"{}\", which is missing", manifest::quote(type),
                          reading.part));
  json part = *found;
  if (type == "gemma3") part.insert(gemma3_defaults().begin(), gemma3_defaults().end());  // keeps what is there
  const ConfigReader part_reader(part, fmt::format("{}: {}", name, reading.part), type);
  refuse_quantised(part_reader);
  if (part_reader.find("dtype") == nullptr && part_reader.find("torch_dtype") == nullptr)
    for (const char* word : {"dtype", "torch_dtype"})
      if (const json* const dtype = file.find(word)) part[word] = *dtype;
  return reading.read(part_reader, type);
}

}  // namespace kiln::cli
