"""Makes the fixtures of test/train/policies/other_adapters: adapters of every kind that peft saved over small models, loaded or refused here.

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch transformers diffusers peft
    /tmp/torch/bin/python test/fixture_scripts/other_adapters.py

Each folder of tokens/ and flow/ is as peft saved it. expected.json beside them holds, for the adapters that are loaded, ids and the
log-probability of each next token with the adapter; for a flow model, the weights of one adapted layer after peft merged it.
"""

import json
import shutil
from pathlib import Path

import torch
from diffusers import FluxTransformer2DModel
from peft import LoraConfig, get_peft_model
from peft.tuners.lora.config import BdLoraConfig, KasaConfig
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

ROOT = Path(__file__).resolve().parents[2] / "test"
OUT = ROOT / "train/policies/other_adapters"
BASE = "llama"
QUERIES = ["q_proj"]
# name: (arguments of LoraConfig over the defaults q_proj and rank 2, arguments of saving)
TOKENS: dict[str, tuple[dict, dict]] = {
    "gaussian": (dict(init_lora_weights="gaussian"), {}),
    "orthogonal": (dict(init_lora_weights="orthogonal"), {}),
    "exclude_modules": (dict(target_modules=["q_proj", "v_proj"], exclude_modules=["layers.0.self_attn.q_proj"]), {}),
    "layers_to_transform": (dict(layers_to_transform=[1], layers_pattern="layers"), {}),
    "lora_bias": (dict(lora_bias=True), {}),
    "pissa": (dict(init_lora_weights="pissa"), {}),
    "olora": (dict(init_lora_weights="olora"), {}),
    "bias": (dict(bias="lora_only"), {}),
    "modules_to_save": (dict(modules_to_save=["norm"]), {}),
    "trainable_token_indices": (dict(trainable_token_indices=[3, 5]), {}),
    "target_parameters": (dict(target_modules=[], target_parameters=["mlp.down_proj.weight"]), {}),
    "layer_replication": (dict(layer_replication=[[0, 2], [1, 2]]), {}),
    "rank_pattern": (dict(rank_pattern={"layers.0.self_attn.q_proj": 1}), {}),
    "alpha_pattern": (dict(alpha_pattern={"layers.0.self_attn.q_proj": 1}), {}),
    "use_dora": (dict(use_dora=True), {}),
    "use_bdlora": (dict(use_bdlora=BdLoraConfig(target_modules_bd_a=QUERIES, nblocks=2)), {}),
    "kasa_config": (dict(kasa_config=KasaConfig()), {}),
    "alora_invocation_tokens": (dict(alora_invocation_tokens=[7]), {}),
    "ensure_weight_tying": (dict(target_modules=["embed_tokens", "lm_head"], ensure_weight_tying=True), {}),
    "saved_embeddings": (dict(), dict(save_embedding_layers=True)),
}
COMPARED = ["gaussian", "orthogonal", "exclude_modules", "layers_to_transform"]
FLOW_TARGETS = ["attn.to_q"]
FLOW = {
    "exclude_modules": dict(exclude_modules=".*single_transformer_blocks.*"),
    "lora_bias": dict(lora_bias=True),
    "pissa": dict(init_lora_weights="pissa"),
    "bias": dict(bias="lora_only"),
    "use_dora": dict(use_dora=True),
}
FLOW_LAYER = "transformer_blocks.0.attn.to_q"
LENGTH = 16


def save(adapted, folder: Path, base: str, **how) -> None:
    for key, value in adapted.named_parameters():
        if value.requires_grad:
            value.data += 0.3 * torch.randn_like(value)
    adapted.save_pretrained(folder, **how)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = base
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    expected: dict = {"tokens": {}, "flow": {}}
    for seed, (name, (settings, how)) in enumerate(TOKENS.items()):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_pretrained(ROOT / "compute/nets/decoder/fixtures" / BASE, attn_implementation="eager")
        config = LoraConfig(task_type="CAUSAL_LM", **dict(r=2, lora_alpha=3, target_modules=QUERIES) | settings)
        adapted = get_peft_model(model, config).eval()
        save(adapted, OUT / "tokens" / name, BASE, **how)
        if name in COMPARED:
            ids = torch.randint(3, 61, (2, LENGTH))
            scores = torch.log_softmax(adapted(ids).logits[:, :-1], -1).gather(-1, ids[:, 1:, None])[..., 0]
            values = [[float(f"{x:.7g}") for x in row] for row in scores.tolist()]
            expected["tokens"][name] = {"ids": ids.tolist(), "logProbs": values}
    torch.manual_seed(100)
    sizes = dict(n_layer=1, n_embd=8, n_head=2, vocab_size=16, n_positions=16)
    gpt2 = get_peft_model(
        GPT2LMHeadModel(GPT2Config(**sizes)), LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    )
    save(gpt2, OUT / "tokens/fan_in_fan_out", "gpt2")
    for seed, (name, settings) in enumerate(FLOW.items()):
        torch.manual_seed(200 + seed)
        model = FluxTransformer2DModel.from_pretrained(ROOT / "compute/nets/flow/fixtures/flux")
        adapted = get_peft_model(model, LoraConfig(**dict(r=2, lora_alpha=3, target_modules=FLOW_TARGETS) | settings))
        save(adapted, OUT / "flow" / name, "flux")
        if name == "exclude_modules":
            merged = adapted.merge_and_unload().get_submodule(FLOW_LAYER).weight
            expected["flow"][name] = {"layer": FLOW_LAYER, "weight": [float(f"{x:.7g}") for x in merged.flatten().tolist()]}
    (OUT / "expected.json").write_text(json.dumps(expected) + "\n")


main()
