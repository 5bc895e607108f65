"""Makes the fixtures of test/compute/nets/flow: small flow transformers of random weights as diffusers saves them, and what it computes with them.

    python -m venv /tmp/diffusers && /tmp/diffusers/bin/pip install torch diffusers safetensors
    /tmp/diffusers/bin/python test/fixture_scripts/flow.py [NAME ...]

Every model is a folder with config.json, its weights, and expected.safetensors: the inputs, the output, and the gradients of all
weights for the sum of the output times `projection`. Gradients are computed in float64.
"""

import json
import shutil
import sys
from pathlib import Path

import diffusers
import torch
from diffusers import Flux2KleinPipeline, Flux2Transformer2DModel, FluxTransformer2DModel, QwenImageTransformer2DModel, SD3Transformer2DModel
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parents[2] / "test" / "compute" / "nets" / "flow" / "fixtures"
SIZES = dict(num_layers=2, attention_head_dim=8, num_attention_heads=2, joint_attention_dim=10, axes_dims_rope=(2, 4, 2))
FLUX = dict(**SIZES, in_channels=9, out_channels=6, num_single_layers=2, pooled_projection_dim=7)
SD3 = dict(
    num_layers=3, attention_head_dim=8, num_attention_heads=2, caption_projection_dim=16, joint_attention_dim=10, pooled_projection_dim=7,
    in_channels=3, out_channels=3, patch_size=2, sample_size=8, pos_embed_max_size=7,
)
FLUX2 = dict(
    num_layers=2, num_single_layers=2, attention_head_dim=12, num_attention_heads=2, joint_attention_dim=10, axes_dims_rope=(2, 2, 4, 4),
    in_channels=6, mlp_ratio=1.3, rope_theta=50,
)
BATCH, ROWS, COLUMNS, TEXT = 2, 3, 4, 5
IP_WIDTH, IP_TOKENS, IP_SCALE = 11, 4, 0.7

# name: (class, its settings, whether it has an IP-Adapter, bytes of a shard)
MODELS = {
    "flux": (FluxTransformer2DModel, dict(**FLUX, guidance_embeds=False), False, "10GB"),
    "flux_guidance": (FluxTransformer2DModel, dict(**FLUX, guidance_embeds=True), False, "40KB"),
    "flux_ip_adapter": (FluxTransformer2DModel, dict(FLUX, num_single_layers=1), True, "10GB"),
    "flux_joint": (FluxTransformer2DModel, dict(FLUX, num_single_layers=0), True, "10GB"),
    "qwen_image": (QwenImageTransformer2DModel, dict(**SIZES, in_channels=12, out_channels=3, patch_size=2), False, "10GB"),
    "sd3": (SD3Transformer2DModel, SD3, False, "10GB"),
    "sd3_medium": (SD3Transformer2DModel, dict(SD3, qk_norm="rms_norm", dual_attention_layers=(0, 1)), False, "10GB"),
    "qwen_clean": (QwenImageTransformer2DModel, dict(**SIZES, in_channels=12, out_channels=3, patch_size=2, zero_cond_t=True), False, "10GB"),
    "flux2": (Flux2Transformer2DModel, dict(**FLUX2, guidance_embeds=False), False, "10GB"),
    "flux2_guidance": (Flux2Transformer2DModel, dict(FLUX2, num_layers=1, num_single_layers=1, guidance_embeds=True), False, "10GB"),
    "flux2_joint": (Flux2Transformer2DModel, dict(FLUX2, num_layers=1, num_single_layers=0, guidance_embeds=False), False, "10GB"),
}


def add_ip_adapter(model, width: int) -> None:
    """Loads an adapter in the format of its files, in the same way as pipelines do."""
    text = SIZES["joint_attention_dim"]
    projection = {
        "proj.weight": torch.randn(IP_TOKENS * text, IP_WIDTH) / IP_WIDTH**0.5,
        "proj.bias": 0.1 * torch.randn(IP_TOKENS * text),
        "norm.weight": 1 + 0.2 * torch.randn(text),
        "norm.bias": 0.2 * torch.randn(text),
    }
    layers = {}
    for block in range(SIZES["num_layers"]):
        for name in ("to_k_ip", "to_v_ip"):
            layers[f"{block}.{name}.weight"] = torch.randn(width, text) / text**0.5
            layers[f"{block}.{name}.bias"] = 0.2 * torch.randn(width)
    model._load_ip_adapter_weights([{"image_proj": projection, "ip_adapter": layers}], low_cpu_mem_usage=False)
    for processor in model.attn_processors.values():
        if hasattr(processor, "scale"):
            processor.scale = [IP_SCALE]


def call(model, inputs: dict) -> torch.Tensor:
    """The model's output for inputs with editrl's names."""
    common = dict(
        hidden_states=inputs["hidden"],
        encoder_hidden_states=inputs["text"],
        timestep=inputs["sigma"],
        return_dict=False,
    )
    if isinstance(model, SD3Transformer2DModel):
        patch, channels = model.config.patch_size, model.config.in_channels
        # Tokens have the channels of a patch outermost; the model takes latents, and noise levels of 1000.
        tokens = lambda x: x.reshape(BATCH, channels, ROWS, patch, COLUMNS, patch).permute(0, 2, 4, 1, 3, 5).reshape(BATCH, ROWS * COLUMNS, -1)
        latents = inputs["hidden"].reshape(BATCH, ROWS, COLUMNS, channels, patch, patch).permute(0, 3, 1, 4, 2, 5)
        common["hidden_states"] = latents.reshape(BATCH, channels, ROWS * patch, COLUMNS * patch)
        common["timestep"] = 1000 * inputs["sigma"]
        return tokens(model(**common, pooled_projections=inputs["pooled"])[0])
    if isinstance(model, QwenImageTransformer2DModel):
        return model(**common, img_shapes=[[(1, ROWS, COLUMNS)]] * BATCH)[0]
    if isinstance(model, Flux2Transformer2DModel):
        texts = Flux2KleinPipeline._prepare_text_ids(inputs["text"])
        images = Flux2KleinPipeline._prepare_latent_ids(torch.zeros(BATCH, 1, ROWS, COLUMNS))
        return model(**common, guidance=inputs.get("guidance"), img_ids=images, txt_ids=texts)[0]
    ids = torch.zeros(ROWS, COLUMNS, 3)
    ids[..., 1] = torch.arange(ROWS)[:, None]
    ids[..., 2] = torch.arange(COLUMNS)[None]
    style = {}
    if "image_features" in inputs:
        style["ip_adapter_image_embeds"] = [inputs["image_features"][:, None]]
    return model(
        **common,
        pooled_projections=inputs["pooled"],
        guidance=inputs.get("guidance"),
        img_ids=ids.reshape(-1, 3),
        txt_ids=torch.zeros(TEXT, 3),
        joint_attention_kwargs=style,
    )[0]


def main() -> None:
    for seed, (name, (kind, settings, has_adapter, shard)) in enumerate(MODELS.items()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        torch.manual_seed(seed)
        model = kind(**settings)
        width = settings["num_attention_heads"] * settings["attention_head_dim"]
        for key, value in model.named_parameters():
            fan_in = value[0].numel()
            value.data = torch.randn_like(value) / fan_in**0.5 if value.ndim > 1 else value.data + 0.2 * torch.randn_like(value)
        if has_adapter:
            add_ip_adapter(model, width)
        folder = ROOT / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder, max_shard_size=shard)
        config = json.loads((folder / "config.json").read_text())
        config.pop("encoder_hid_dim_type", None)
        if has_adapter:
            config["ip_adapter"] = {"tokens": IP_TOKENS, "image_embed_dim": IP_WIDTH, "scale": IP_SCALE}
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")

        width_in = settings["in_channels"] * (4 if kind is SD3Transformer2DModel else 1)
        inputs = {
            "hidden": torch.randn(BATCH, ROWS * COLUMNS, width_in),
            "text": torch.randn(BATCH, TEXT, settings["joint_attention_dim"]),
            "sigma": torch.tensor([0.8125, 0.25]),
        }
        if "pooled_projection_dim" in settings:
            inputs["pooled"] = torch.randn(BATCH, settings["pooled_projection_dim"])
        if settings.get("guidance_embeds"):
            inputs["guidance"] = torch.tensor([3.5, 1.0])
        if has_adapter:
            inputs["image_features"] = torch.randn(BATCH, IP_WIDTH)
        with torch.no_grad():
            output = call(model, inputs)
        projection = torch.randn_like(output)
        model.double()
        exact = call(model, {key: value.double() for key, value in inputs.items()})
        (exact * projection).sum().backward()
        gradients = {
            f"gradient:{key}": value.grad.float() for key, value in model.named_parameters() if value.grad is not None
        }
        save_file(
            {**inputs, **gradients, "output": output, "projection": projection},
            folder / "expected.safetensors",
            metadata={"diffusers": diffusers.__version__, "torch": torch.__version__},
        )
        print(name, len(gradients), "gradients, output", float(output.abs().max()), "float64", float((exact - output).abs().max()))


main()
