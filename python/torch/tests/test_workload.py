"""What kiln.torch.patch() launches is what tests/cli/models/torch says, from which `kiln workload --for torch` is tested.

KILN_RENEW=1 writes these files anew.
"""
import os
import pathlib

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "tests/cli/models/torch"
PROGRAM = """
import copy, json, transformers
given = json.load(open(CONFIG))
config = getattr(transformers, given["model_type"].capitalize() + "Config")(**given)
config._attn_implementation = "eager"
torch.manual_seed(0)
model = getattr(transformers, given["model_type"].capitalize() + "ForCausalLM")(config).to(torch.bfloat16)
for each in model.parameters():
    each.data = on(each.data)
model = kiln.torch.patch(model)
tokens = torch.randint(64, (2, 40))
offsets = on(torch.tensor([0, 40, 80], dtype=torch.int32))
packed = dict(position_ids=torch.arange(40).repeat(2)[None], cu_seq_lens_q=offsets, cu_seq_lens_k=offsets, max_length_q=40, max_length_k=40)
mask = torch.ones_like(tokens)
mask[0, :4] = 0
served = copy.deepcopy(model)
for each in served.parameters():
    each.data = on(each.data)
served = kiln.torch.patch(served, inference=True)
for module in served.modules():
    if getattr(module, "_kiln_joined", None) is not None:
        module._kiln_joined = on(module._kiln_joined)
        module._kiln_bias = None if module._kiln_bias is None else on(module._kiln_bias)
with torch.no_grad():
    for each in (served, model):
        each(tokens, use_cache=False)
        each(tokens, attention_mask=mask, use_cache=False)
        each(tokens.view(1, 80), **packed, use_cache=False)
        for cache in (None, "static"):
            for tokens_told in (torch.ones_like(tokens), mask):
                each.generate(tokens, attention_mask=tokens_told, max_new_tokens=3, do_sample=False, pad_token_id=0, cache_implementation=cache)
print("##" + kiln.record() + "##")
model(tokens, labels=tokens, use_cache=False).loss.backward()
model(tokens.view(1, 80), **packed, labels=tokens.view(1, 80), use_cache=False).loss.backward()
print(kiln.record())
"""


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_a_patched_model_launches_what_is_recorded(run_program, name):
    said = run_program(f"CONFIG = {str(FOLDER / name) + '.json'!r}" + PROGRAM, FAKE_CUDA="footprint 64")  # kernels are launched, and run nothing
    _, served, trained = said.split("##")
    for ending, text in (("", served), ("_gradients", trained)):
        file = FOLDER / f"{name}{ending}.toml"
        if os.environ.get("KILN_RENEW"):
            file.write_text(f"# Launches of kiln.torch.patch() on {name}.json, with inference=True and without, as kiln.record wrote them.\n" + text.strip() + "\n")
        assert text.split() == file.read_text().partition("\n")[2].split()
