"""Makes test/train/policies/flow/fixtures/sd3 and flux: small pipelines of random weights as diffusers saves them, and what they compute.

    python -m venv /tmp/diffusers && /tmp/diffusers/bin/pip install torch diffusers transformers sentencepiece protobuf
    /tmp/diffusers/bin/python test/fixture_scripts/sd3_pipeline.py

Of Stable Diffusion 3, one CLIP's tokenizer has the files of its first years (vocab.json, merges.txt), the other fills texts up with "!" as that of the original.
expected.safetensors holds texts and summaries of prompts, with T5 and without, and a picture from noise under guidance.
"""

import json
import shutil
import tempfile
from pathlib import Path

import diffusers
import sentencepiece
import torch
import transformers
from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
)
from safetensors.torch import save_file
from tokenizers import pre_tokenizers
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer, T5Config, T5EncoderModel, T5TokenizerFast

FIXTURES = Path(__file__).resolve().parents[2] / "test" / "train" / "policies" / "flow" / "fixtures"
ROOT, FLUX = FIXTURES / "sd3", FIXTURES / "flux"
LENGTH = 16
PROMPTS = {"short": "A red  door, and BAT's naïve 2 signs", "long": "a red door by the sea " * 40, "empty": ""}
STEPS, GUIDANCE, WIDTH, HEIGHT = 4, 4.5, 12, 16
START, END = "<|startoftext|>", "<|endoftext|>"


def clip_tokenizer(folder: Path, filler: str) -> CLIPTokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("r", "e"), ("re", "d</w>"), ("d", "o"), ("o", "r</w>"), ("t", "h"), ("th", "e</w>")]
    tokens = [*letters, *(letter + "</w>" for letter in letters), *("".join(pair) for pair in merges), START, END]
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}, ensure_ascii=False))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    special = {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": filler}
    settings = {**special, "model_max_length": LENGTH, "do_lower_case": True, "tokenizer_class": "CLIPTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    return CLIPTokenizer.from_pretrained(folder)


def t5_tokenizer(folder: Path) -> T5TokenizerFast:
    folder.mkdir(parents=True)
    text = folder / "text"
    text.write_text("\n".join(["a red door by the sea", "two signs that say bat", "naive and open", "The quick brown fox jumps over it"] * 50))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "spiece"), vocab_size=36, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
        normalization_rule_name="identity",
    )
    return T5TokenizerFast.from_pretrained(folder, extra_ids=0, model_max_length=512)


def livelier(model):
    """Weights that tell one input from another."""
    for parameter in model.parameters():
        fan_in = parameter[0].numel()
        noise = torch.randn_like(parameter)
        parameter.data = noise / fan_in**0.5 if parameter.ndim > 1 else parameter.data + 0.2 * noise
    return model.eval()


def autoencoder() -> AutoencoderKL:
    levels = dict(down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, block_out_channels=(8, 8))
    scale = dict(scaling_factor=1.5305, shift_factor=0.0609, use_quant_conv=False, use_post_quant_conv=False)
    return livelier(AutoencoderKL(latent_channels=4, norm_num_groups=4, **levels, **scale))


def t5() -> T5EncoderModel:
    config = T5Config(vocab_size=72, d_model=24, d_kv=4, d_ff=20, num_layers=2, num_heads=3, feed_forward_proj="gated-gelu")
    return livelier(T5EncoderModel(config))


def clip(width: int, space: int, vocabulary: int, kind=CLIPTextModelWithProjection, **more):
    sizes = dict(hidden_size=width, intermediate_size=2 * width, num_hidden_layers=3, num_attention_heads=2, projection_dim=space)
    config = CLIPTextConfig(vocab_size=vocabulary, max_position_embeddings=LENGTH, bos_token_id=vocabulary - 2, pad_token_id=1, **sizes, **more)
    return livelier(kind(config))


def main() -> None:
    torch.manual_seed(0)
    shutil.rmtree(ROOT, ignore_errors=True)
    with tempfile.TemporaryDirectory() as made:
        source = Path(made)
        tokenizer, tokenizer_2 = clip_tokenizer(source / "clip", END), clip_tokenizer(source / "clip_2", "!")
        tokenizer_3 = t5_tokenizer(source / "t5")
        vocabulary = len(tokenizer)
        pipeline = StableDiffusion3Pipeline(
            transformer=livelier(
                SD3Transformer2DModel(
                    num_layers=2, attention_head_dim=8, num_attention_heads=2, caption_projection_dim=16, joint_attention_dim=24,
                    pooled_projection_dim=11, in_channels=4, out_channels=4, sample_size=8, pos_embed_max_size=6, qk_norm="rms_norm",
                    dual_attention_layers=(0,),
                )
            ),
            scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
            vae=autoencoder(),
            text_encoder=clip(8, 6, vocabulary, eos_token_id=vocabulary - 1),
            text_encoder_2=clip(12, 5, vocabulary, eos_token_id=2, hidden_act="gelu"),
            text_encoder_3=t5(),
            tokenizer=tokenizer,
            tokenizer_2=tokenizer_2,
            tokenizer_3=tokenizer_3,
        )
        pipeline.set_progress_bar_config(disable=True)
        pipeline.save_pretrained(ROOT)
        # What the folders of the first years have.
        shutil.rmtree(ROOT / "tokenizer")
        shutil.copytree(source / "clip", ROOT / "tokenizer")
    for name in ("vocab.json", "merges.txt", "special_tokens_map.json", "spiece.model"):
        for folder in ("tokenizer_2", "tokenizer_3"):
            (ROOT / folder / name).unlink(missing_ok=True)
    tensors = {}
    for reader in (pipeline.text_encoder_3, None):
        pipeline.text_encoder_3 = reader
        for name, prompt in PROMPTS.items():
            with torch.no_grad():
                text, _, pooled, _ = pipeline.encode_prompt(prompt, prompt, prompt, device="cpu", do_classifier_free_guidance=False)
            if reader is None and name != "short":
                continue
            tensors[f"{'text' if reader is not None else 'without_t5'}:{name}"] = text[0].clone()
            tensors[f"pooled:{name}"] = pooled[0].clone()
        if reader is None:
            continue
        noise = torch.randn(1, 4, HEIGHT // 2, WIDTH // 2)
        options = dict(num_inference_steps=STEPS, guidance_scale=GUIDANCE, height=HEIGHT, width=WIDTH)
        for kind in ("latent", "pt"):
            with torch.no_grad():
                found = pipeline(PROMPTS["short"], latents=noise.clone(), output_type=kind, **options).images[0]
            tensors[{"latent": "latents", "pt": "picture"}[kind]] = found.contiguous()
        tensors["noise"] = noise[0]
        tensors["sigmas"] = pipeline.scheduler.sigmas.clone()
    save_file(tensors, ROOT / "expected.safetensors", metadata={"diffusers": diffusers.__version__, "transformers": transformers.__version__})
    (ROOT / "prompts.json").write_text(json.dumps(PROMPTS, ensure_ascii=False, indent=2) + "\n")
    shown(tensors)
    flux(tokenizer, tokenizer_3)


def flux(tokenizer: CLIPTokenizer, tokenizer_2: T5TokenizerFast) -> None:
    shutil.rmtree(FLUX, ignore_errors=True)
    sizes = dict(num_layers=1, num_single_layers=1, attention_head_dim=8, num_attention_heads=2, axes_dims_rope=(2, 4, 2))
    widths = dict(in_channels=16, joint_attention_dim=24, pooled_projection_dim=8, guidance_embeds=True)
    pipeline = FluxPipeline(
        transformer=livelier(FluxTransformer2DModel(**sizes, **widths)),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=autoencoder(),
        text_encoder=clip(8, 6, len(tokenizer), CLIPTextModel, eos_token_id=2),
        text_encoder_2=t5(),
        tokenizer=tokenizer,
        tokenizer_2=tokenizer_2,
    )
    pipeline.set_progress_bar_config(disable=True)
    pipeline.save_pretrained(FLUX)
    noise = torch.randn(1, (HEIGHT // 4) * (WIDTH // 4), 16)
    options = dict(num_inference_steps=STEPS, guidance_scale=3.5, height=HEIGHT, width=WIDTH, output_type="latent")
    with torch.no_grad():
        text, pooled, _ = pipeline.encode_prompt(PROMPTS["short"], None, device="cpu")
        latents = pipeline(PROMPTS["short"], latents=noise.clone(), **options).images[0]
    tensors = {"text": text[0], "pooled": pooled[0], "noise": noise[0], "latents": latents, "sigmas": pipeline.scheduler.sigmas}
    save_file({name: value.contiguous().clone() for name, value in tensors.items()}, FLUX / "expected.safetensors")
    shown(tensors)


def shown(tensors: dict) -> None:
    for name, value in tensors.items():
        print(name, list(value.shape), float(value.abs().max()))


main()
