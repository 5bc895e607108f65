"""Makes the fixture of test/train/policies/flow: LoRA that peft saved over a model of test/compute/nets/flow, and what diffusers computes with it.

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch diffusers peft
    /tmp/torch/bin/python test/fixture_scripts/flow_lora.py

expected.safetensors holds the output for the inputs of the base's own expected.safetensors, and the gradient of the sum of the output
times that file's `projection` by each of the adapter's parameters, in float64.
"""

import json
import shutil
from pathlib import Path

import diffusers
import peft
import torch
from diffusers import FluxTransformer2DModel
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

TESTS = Path(__file__).resolve().parents[2] / "test"
BASE = "flux"
ROWS, COLUMNS = 3, 4
TARGETS = ["attn.to_q", "attn.add_v_proj", "to_out.0", "net.2", "proj_mlp", "x_embedder", "norm1.linear"]


def main() -> None:
    torch.manual_seed(0)
    base = TESTS / "compute/nets/flow/fixtures" / BASE
    model = get_peft_model(
        FluxTransformer2DModel.from_pretrained(base), LoraConfig(r=3, lora_alpha=5, target_modules=TARGETS)
    ).eval()
    trained = {key: value for key, value in model.named_parameters() if value.requires_grad}
    for value in trained.values():
        value.data = 0.3 * torch.randn_like(value)
    folder = TESTS / "train/policies/flow/fixtures/flux_lora"
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = BASE
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")

    inputs = load_file(base / "expected.safetensors")
    ids = torch.zeros(ROWS, COLUMNS, 3)
    ids[..., 1] = torch.arange(ROWS)[:, None]
    ids[..., 2] = torch.arange(COLUMNS)[None]
    model.double()
    output = model(
        hidden_states=inputs["hidden"].double(),
        encoder_hidden_states=inputs["text"].double(),
        pooled_projections=inputs["pooled"].double(),
        timestep=inputs["sigma"].double(),
        img_ids=ids.reshape(-1, 3),
        txt_ids=torch.zeros(inputs["text"].shape[1], 3),
        return_dict=False,
    )[0]
    (output * inputs["projection"].double()).sum().backward()
    gradients = {
        "gradient:" + key.removeprefix("base_model.model.").replace(".default", ""): value.grad.float()
        for key, value in trained.items()
    }
    versions = {"diffusers": diffusers.__version__, "peft": peft.__version__, "torch": torch.__version__}
    save_file({"output": output.detach().float(), **gradients}, folder / "expected.safetensors", metadata=versions)
    print(len(gradients), "gradients, output", float(output.abs().max()))


main()
