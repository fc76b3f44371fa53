"""The model of llama.py and generate.py: transformers' own Llama, of random weights in bf16 that are the same at each call."""
import torch
import transformers

LONGEST = 4096


def model_of(width: int, layers: int, device: str, has_gradients: bool = False, **settings) -> torch.nn.Module:
    """In training mode where it has gradients. Settings: further ones of its LlamaConfig."""
    config = transformers.LlamaConfig(vocab_size=32000, hidden_size=width, intermediate_size=width * 7 // 2, num_hidden_layers=layers,
                                      num_attention_heads=width // 128, num_key_value_heads=max(width // 512, 1), head_dim=128,
                                      max_position_embeddings=LONGEST, rope_theta=500000.0, **settings)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = transformers.LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model.train(has_gradients).requires_grad_(has_gradients)
