"""Makes the fixtures of test/train/policies/flow/guided_edit.test.ts: small edit transformers of random weights, and what diffusers' pipelines draw with them.

    python -m venv /tmp/diffusers && /tmp/diffusers/bin/pip install torch diffusers transformers pillow safetensors
    /tmp/diffusers/bin/python test/fixture_scripts/edit_pipeline.py [guided_edit] [several_edit]

A folder has the transformer as diffusers saves it, and expected.safetensors: the latents of the picture before the edit, the noise, the states
of the edit and of a blank instruction, and the final latents of QwenImageEditPipeline, with and without guidance. The pipeline normally scales
the picture before the edit to about 1024x1024 pixels; here it keeps the size that is drawn, as editrl does. several_edit is of
QwenImageEditPlusPipeline with a transformer of Qwen-Image-Edit-2511's form and three pictures before the edit, of which two have sizes of their own.
"""

import shutil
import sys
from pathlib import Path

import diffusers
import numpy as np
import torch
from diffusers import (
    AutoencoderKLQwenImage,
    FlowMatchEulerDiscreteScheduler,
    QwenImageEditPipeline,
    QwenImageEditPlusPipeline,
    QwenImageTransformer2DModel,
)
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit, pipeline_qwenimage_edit_plus
from PIL import Image
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parents[2] / "test" / "train" / "policies" / "flow" / "fixtures"
WIDTH, CHANNELS = 12, 4
SIDES = (48, 32)  # Width and height: 6 x 4 tokens of 8 x 8 pixels.
FURTHER = ((16, 56), (64, 24))
STEPS, SCALE = 4, 4.0
TOLD, BLANK = 9, 5  # Tokens.


def make(name: str, kind: type, sizes: tuple, **form) -> None:
    """Writes the folder of a pipeline that is shown pictures of these sizes; the edited one has that of the first."""
    torch.manual_seed(0)
    transformer = QwenImageTransformer2DModel(
        patch_size=2, in_channels=4 * CHANNELS, out_channels=CHANNELS, num_layers=2, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=WIDTH, guidance_embeds=False, axes_dims_rope=(4, 2, 2), **form,
    )
    for value in transformer.parameters():
        drawn = torch.randn_like(value)
        value.data = drawn / value.shape[-1] ** 0.5 if value.ndim > 1 else value.data + 0.2 * drawn
    vae = AutoencoderKLQwenImage(
        base_dim=8, z_dim=CHANNELS, dim_mult=[1, 2, 4], num_res_blocks=1, temperal_downsample=[False, True],
        latents_mean=[0.0] * CHANNELS, latents_std=[1.0] * CHANNELS,
    )
    # Qwen-Image-Edit's scheduler_config.json.
    scheduler = FlowMatchEulerDiscreteScheduler(
        use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9, base_image_seq_len=256, max_image_seq_len=8192, shift_terminal=0.02,
        time_shift_type="exponential",
    )
    pipeline = kind(
        transformer=transformer, vae=vae, scheduler=scheduler, text_encoder=None, tokenizer=None, processor=None
    )
    pipeline.set_progress_bar_config(disable=True)
    pipeline_qwenimage_edit.calculate_dimensions = lambda area, ratio: (*SIDES, None)
    pipeline_qwenimage_edit_plus.calculate_dimensions = lambda area, ratio: next(s for s in sizes if s[0] / s[1] == ratio)

    width, height = (side // 4 for side in SIDES)
    drawn = np.random.default_rng(0)
    pictures = [Image.fromarray(drawn.integers(0, 256, (high, wide, 3), dtype=np.uint8)) for wide, high in sizes]
    pixels = [pipeline.image_processor.preprocess(one, one.height, one.width).unsqueeze(2) for one in pictures]
    inputs = {
        "noise": torch.randn(1, (height // 2) * (width // 2), 4 * CHANNELS),
        "told": torch.randn(1, TOLD, WIDTH),
        "blank": torch.randn(1, BLANK, WIDTH),
    }

    def draw(**guided):
        with torch.no_grad():
            return pipeline(
                image=pictures if len(pictures) > 1 else pictures[0], prompt_embeds=inputs["told"], prompt_embeds_mask=torch.ones(1, TOLD, dtype=torch.long),
                width=SIDES[0], height=SIDES[1], num_inference_steps=STEPS, latents=inputs["noise"].clone(), output_type="latent", **guided,
            ).images

    with torch.no_grad():
        sources = [pipeline._encode_vae_image(one, torch.Generator().manual_seed(0))[0, :, 0] for one in pixels]
        unguided = draw(true_cfg_scale=1.0)
        guided = draw(
            true_cfg_scale=SCALE, negative_prompt_embeds=inputs["blank"],
            negative_prompt_embeds_mask=torch.ones(1, BLANK, dtype=torch.long),
        )
    folder = ROOT / name
    shutil.rmtree(folder, ignore_errors=True)
    transformer.save_pretrained(folder)
    tensors = {key: value[0] for key, value in {**inputs, "guided": guided, "unguided": unguided}.items()}
    shown = {"source" if i == 0 else f"source.{i}": value for i, value in enumerate(sources)}
    save_file(
        {key: value.contiguous() for key, value in {**tensors, **shown}.items()},
        folder / "expected.safetensors",
        metadata={"diffusers": diffusers.__version__, "torch": torch.__version__},
    )
    print(name, "largest", float(guided.abs().max()), "guidance changes by", float((guided - unguided).abs().max()))


def main() -> None:
    asked = sys.argv[1:] or ["guided_edit", "several_edit"]
    if "guided_edit" in asked:
        make("guided_edit", QwenImageEditPipeline, (SIDES,))
    if "several_edit" in asked:
        make("several_edit", QwenImageEditPlusPipeline, (SIDES, *FURTHER), zero_cond_t=True)


main()
