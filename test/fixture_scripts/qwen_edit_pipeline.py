"""Makes test/train/policies/flow/fixtures/qwen_edit: the parts of a small Qwen-Image-Edit with random weights, and edits by diffusers' pipelines.

    python -m venv /tmp/diffusers && /tmp/diffusers/bin/pip install torch diffusers transformers pillow safetensors
    /tmp/diffusers/bin/python test/fixture_scripts/qwen_edit_pipeline.py

A file each for QwenImageEditPipeline (plain), QwenImageEditPlusPipeline with three images (2509), and the latter with zero_cond_t (2511):
the states of the instruction and of a blank one, the noise, the edited latents and the edited image, from image files and words. The
pipelines scale images to fixed areas first. Here images keep their size, as in editrl.

The number of tokens that the pipelines drop is Qwen's length of the system message. It is set to the length by this tokenizer of letters.
transformers 5 only counts images in positions if a processor marks their tokens, which the pipelines do not pass on: a hook marks them, as
transformers 4 did by itself when the real models were trained.
"""

import json
import shutil
from pathlib import Path

import diffusers
import numpy as np
import torch
import transformers
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
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLImageProcessor

ROOT = Path(__file__).resolve().parents[2] / "test" / "train" / "policies" / "flow" / "fixtures" / "qwen_edit"
WIDTH, CHANNELS = 16, 4
SIZES = ((48, 32), (16, 56), (64, 24))
STEPS, SCALE = 4, 4.0
INSTRUCTION = "put Picture 2's hat on it"
PAD = "<|image_pad|>"
SPECIAL = ["<|im_start|>", "<|vision_start|>", "<|vision_end|>", PAD, "<|video_pad|>"]
TEMPLATE = (
    "{%- set shown = namespace(images=0) -%}{%- for message in messages -%}{{ '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.content is string -%}{{ message.content }}{%- else -%}{%- for part in message.content -%}{%- if part.type == 'image' -%}"
    "{%- set shown.images = shown.images + 1 -%}{%- if add_vision_id -%}{{ 'Picture ' ~ shown.images ~ ': ' }}{%- endif -%}"
    "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{%- else -%}{{ part.text }}{%- endif -%}{%- endfor -%}{%- endif -%}"
    "{{ '<|im_end|>\\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)


def livelier(model):
    """Weights that tell one input from another."""
    for value in model.parameters():
        drawn = torch.randn_like(value)
        value.data = drawn / value[0].numel() ** 0.5 if value.ndim > 1 else value.data + 0.2 * drawn
    return model.eval()


def letters(folder: Path) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>", "additional_special_tokens": SPECIAL}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return PreTrainedTokenizerFast.from_pretrained(folder)


class Processor:
    """Qwen2VLProcessor without videos, which need torchvision."""

    def __init__(self, tokenizer, images) -> None:
        self.tokenizer, self.images = tokenizer, images

    def __call__(self, text, images, padding, return_tensors):
        pictures = images if isinstance(images, list) else [images]
        shown = self.images(images=pictures, return_tensors="pt")
        for grid in shown["image_grid_thw"]:
            count = int(grid.prod()) // self.images.merge_size**2
            text = [one.replace(PAD, "<|here|>" * count, 1) for one in text]
        said = self.tokenizer([one.replace("<|here|>", PAD) for one in text], padding=padding, return_tensors="pt")
        return transformers.BatchFeature({**said, **shown})


def reader(tokenizer) -> Qwen2_5_VLForConditionalGeneration:
    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in zip(("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id"), SPECIAL[1:])}
    text = dict(vocab_size=272, hidden_size=WIDTH, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, bos_token_id=None, eos_token_id=None)
    rope = dict(rope_type="default", rope_theta=1e6, mrope_section=[1, 1, 2])
    vision = dict(depth=2, hidden_size=16, num_heads=2, intermediate_size=16, out_hidden_size=WIDTH, patch_size=4, window_size=16, fullatt_block_indexes=[1])
    config = Qwen2_5_VLConfig(text_config={**text, "rope_parameters": rope}, vision_config=vision, **ids)
    model = livelier(Qwen2_5_VLForConditionalGeneration(config))

    def marked(module, args, kwargs):
        return args, {**kwargs, "mm_token_type_ids": (kwargs["input_ids"] == ids["image_token_id"]).int()}

    model.register_forward_pre_hook(marked, with_kwargs=True)
    return model


def main() -> None:
    torch.manual_seed(5)
    shutil.rmtree(ROOT, ignore_errors=True)
    tokenizer = letters(ROOT / "processor")
    images = Qwen2VLImageProcessor(patch_size=4, merge_size=2, temporal_patch_size=2, min_pixels=64, max_pixels=65536)
    images.save_pretrained(ROOT / "processor")
    transformer = livelier(
        QwenImageTransformer2DModel(
            patch_size=2, in_channels=4 * CHANNELS, out_channels=CHANNELS, num_layers=2, attention_head_dim=8, num_attention_heads=2,
            joint_attention_dim=WIDTH, guidance_embeds=False, axes_dims_rope=(4, 2, 2), zero_cond_t=True,
        )
    )
    parts = dict(
        text_encoder=reader(tokenizer),
        vae=livelier(
            AutoencoderKLQwenImage(
                base_dim=4, z_dim=CHANNELS, dim_mult=[1, 2, 2], num_res_blocks=1, temperal_downsample=[False, True],
                latents_mean=[0.1, -0.2, 0.3, 0.0], latents_std=[1.5, 0.8, 1.0, 1.2],
            )
        ),
    )
    for name, part in (*parts.items(), ("transformer", transformer)):
        part.save_pretrained(ROOT / name)
    # Qwen-Image-Edit's scheduler_config.json.
    scheduler = FlowMatchEulerDiscreteScheduler(
        use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9, base_image_seq_len=256, max_image_seq_len=8192, shift_terminal=0.02,
        time_shift_type="exponential",
    )
    scheduler.save_pretrained(ROOT / "scheduler")
    index = dict(
        _class_name="QwenImageEditPlusPipeline", processor=["transformers", "Qwen2VLProcessor"], scheduler=["diffusers", "FlowMatchEulerDiscreteScheduler"],
        text_encoder=["transformers", "Qwen2_5_VLForConditionalGeneration"], tokenizer=["transformers", "Qwen2Tokenizer"],
        transformer=["diffusers", "QwenImageTransformer2DModel"], vae=["diffusers", "AutoencoderKLQwenImage"],
    )
    (ROOT / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")
    drawn = np.random.default_rng(5)
    pictures = [Image.fromarray(drawn.integers(0, 256, (high, wide, 3), dtype=np.uint8)) for wide, high in SIZES]
    for i, picture in enumerate(pictures):
        picture.save(ROOT / f"source.{i}.png")
    own = lambda area, ratio: next((wide, high) for wide, high in SIZES if wide / high == ratio)
    pipeline_qwenimage_edit.calculate_dimensions = lambda area, ratio: (*own(area, ratio), None)
    pipeline_qwenimage_edit_plus.calculate_dimensions = own

    for name, kind, count, clean in (("plain", QwenImageEditPipeline, 1, False), ("2509", QwenImageEditPlusPipeline, 3, False), ("2511", QwenImageEditPlusPipeline, 3, True)):
        transformer.zero_cond_t = clean
        pipeline = kind(transformer=transformer, scheduler=scheduler, tokenizer=tokenizer, processor=None, **parts)
        pipeline.processor = Processor(tokenizer, images)
        start = pipeline.prompt_template_encode.index("<|im_start|>user\n") + len("<|im_start|>user\n")
        pipeline.prompt_template_encode_start_idx = len(tokenizer(pipeline.prompt_template_encode[:start])["input_ids"])
        pipeline.set_progress_bar_config(disable=True)
        shown = pictures[:count] if count > 1 else pictures[0]
        width, height = SIZES[0]
        noise = torch.randn(1, (height // 8) * (width // 8), 4 * CHANNELS)
        tensors = {"noise": noise[0]}
        with torch.no_grad():
            for which, words in (("states", INSTRUCTION), ("blank", " ")):
                tensors[which] = pipeline.encode_prompt(image=shown, prompt=words, device="cpu")[0][0]
            for output, key in (("latent", "latents"), ("pt", "edited")):
                tensors[key] = pipeline(
                    image=shown, prompt=INSTRUCTION, negative_prompt=" ", true_cfg_scale=SCALE, width=width, height=height,
                    num_inference_steps=STEPS, latents=noise.clone(), output_type=output,
                ).images[0]
        versions = {"diffusers": diffusers.__version__, "transformers": transformers.__version__, "torch": torch.__version__}
        save_file({key: value.contiguous().clone() for key, value in tensors.items()}, ROOT / f"{name}.safetensors", metadata=versions)
        print(name, {key: (list(value.shape), round(float(value.abs().max()), 3)) for key, value in tensors.items()})


main()
