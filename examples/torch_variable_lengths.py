#!/usr/bin/env python3
"""Trains a small Llama on batches of varying lengths, packed into one row, then generates with it: examples/torch_variable_lengths.py [STEPS]

Needs kiln-kernels, kiln-kernels-torch, transformers, and a GPU. The text is counting: after 7 comes 8.
"""
import sys
import time

import torch
import transformers

import kiln
import kiln.torch

DEVICE, VOCABULARY, LONGEST = "cuda", 64, 200


def model_of() -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                      max_position_embeddings=LONGEST + 16)
    return kiln.torch.patch(transformers.LlamaForCausalLM(config).to(DEVICE, torch.bfloat16))


def batch_of(generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Eight sequences one after another, and where each begins."""
    lengths = torch.randint(8, LONGEST, (8,), generator=generator)
    begins = torch.randint(VOCABULARY, (8,), generator=generator)
    tokens = torch.cat([(begin + torch.arange(length)) % VOCABULARY for begin, length in zip(begins.tolist(), lengths.tolist())])
    positions = torch.cat([torch.arange(length) for length in lengths.tolist()])
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    labels = torch.where(positions == 0, -100, tokens)  # a sequence does not foretell the next one's first token
    batch = {"input_ids": tokens[None], "position_ids": positions[None], "labels": labels[None], "cu_seq_lens_q": offsets, "cu_seq_lens_k": offsets}
    return {name: each.to(DEVICE) for name, each in batch.items()} | {"max_length_q": LONGEST, "max_length_k": LONGEST}


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    kiln.configure(on_miss="nearest")  # no step waits for a tune
    model, generator = model_of(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for step in range(steps):
        loss = model(**batch_of(generator)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.3f} after {time.perf_counter() - begin:.2f} s")
    kiln.torch.patch(model.eval(), inference=True)  # query, key and value in one product, gate and up in another
    for start in (3, 40):
        prompt = (start + torch.arange(12, device=DEVICE))[None] % VOCABULARY
        written = model.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0)[0, 12:]
        print(f"after {start} to {start + 11}: {written.tolist()}")
    print({name: value for name, value in kiln.stats().items() if value})


if __name__ == "__main__":
    main()
