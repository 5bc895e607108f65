"""Makes the fixtures of test/train/policies/adapters: adapters that peft saved over models of test/compute/nets/decoder, and what it computes with them.

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch transformers peft
    /tmp/torch/bin/python test/fixture_scripts/adapters.py

expected.json holds ids, the logits at each, and the gradient of sum(log p of each next token) by each of the adapter's parameters.
"""

import json
import shutil
from pathlib import Path

import peft
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).resolve().parents[2] / "test"
# name: (model, arguments of LoraConfig)
ADAPTERS = {
    "all_linear": ("qwen3", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "rslora": ("llama", dict(r=3, lora_alpha=5, use_rslora=True, target_modules=["q_proj", "mlp.down_proj"])),
}
LENGTH = 16


def main() -> None:
    for seed, (name, (model, settings)) in enumerate(ADAPTERS.items()):
        torch.manual_seed(seed)
        base = AutoModelForCausalLM.from_pretrained(ROOT / "compute/nets/decoder/fixtures" / model, attn_implementation="eager")
        adapted = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **settings)).eval()
        trained = {key: value for key, value in adapted.named_parameters() if value.requires_grad}
        for value in trained.values():
            value.data = 0.3 * torch.randn_like(value)
        ids = torch.randint(3, 61, (2, LENGTH))
        logits = adapted(ids).logits
        picked = torch.log_softmax(logits[:, :-1], -1).gather(-1, ids[:, 1:, None])
        picked.sum().backward()
        folder = ROOT / "train/policies/adapters" / name
        shutil.rmtree(folder, ignore_errors=True)
        adapted.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        config = json.loads((folder / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = model
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
        gradients = {
            key.removeprefix("base_model.model.").replace(".default", ""): value.grad.flatten().tolist()
            for key, value in trained.items()
        }
        expected = {
            "peft": peft.__version__,
            "model": model,
            "ids": ids.tolist(),
            "logits": [[[round(x, 6) for x in row] for row in rows] for rows in logits.tolist()],
            "gradients": {key: [float(f"{x:.6g}") for x in values] for key, values in gradients.items()},
        }
        (folder / "expected.json").write_text(json.dumps(expected) + "\n")


main()
