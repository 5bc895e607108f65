"""Makes the fixtures of test/compute/nets/decoder: small decoders of random weights as transformers saves them, and what it computes with them.

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch transformers
    /tmp/torch/bin/python test/fixture_scripts/decoders.py [NAME ...]

With names it makes only these models.

Every model is a folder with config.json, its weights and expected.json: ids, the logits at each of them, and the ids that greedy
decoding continues with.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, Emu3ForCausalLM, Qwen2VLForConditionalGeneration

ROOT = Path(__file__).resolve().parents[2] / "test" / "compute" / "nets" / "decoder" / "fixtures"
SIZES = dict(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=500000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)

# name: (model type, its settings, dtype, bytes of a shard)
MODELS = {
    "llama": ("llama", dict(attention_bias=True, mlp_bias=True, head_dim=6), torch.float32, "10GB"),
    "llama3": ("llama", dict(rope_parameters=LLAMA3, tie_word_embeddings=True), torch.bfloat16, "10GB"),
    "mistral": ("mistral", dict(sliding_window=7, head_dim=10), torch.float32, "20KB"),
    "qwen2": ("qwen2", dict(use_sliding_window=True, sliding_window=6, max_window_layers=1), torch.float16, "10GB"),
    "qwen2_yarn": ("qwen2", dict(rope_parameters=YARN, tie_word_embeddings=True), torch.float32, "10GB"),
    "qwen3": ("qwen3", dict(head_dim=12), torch.float32, "10GB"),
    "linear": ("llama", dict(rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.5)), torch.float32, "10GB"),
    "dynamic": ("llama", dict(rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)), torch.float32, "10GB"),
    "qwen2_vl": (
        "qwen2_vl",
        dict(rope_parameters=dict(rope_type="default", rope_theta=1000000.0, mrope_section=[1, 1, 2])),
        torch.float32,
        "10GB",
    ),
    "emu3_text": ("emu3_text_model", dict(), torch.float32, "10GB"),
    "gemma3": (
        "gemma3_text",
        dict(
            num_hidden_layers=7,
            head_dim=10,
            query_pre_attn_scalar=14,
            sliding_window=6,
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=2.0),
                sliding_attention=dict(rope_type="default", rope_theta=100.0),
            ),
        ),
        torch.float32,
        "10GB",
    ),
}
LENGTH, NEW = 24, 12
# The smallest encoders, since only text goes through the models here.
SMALL = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
WHOLE = {
    "gemma3": dict(vision_config=dict(model_type="siglip_vision_model", **SMALL), mm_tokens_per_image=1, image_token_index=56),
    "mistral3": dict(vision_config=dict(model_type="pixtral", head_dim=8, **SMALL), image_token_index=56),
}

# Ministral 3 multiplies queries from this position on, and LongRoPE changes its factors: longer sequences are not supported.
ORIGINAL = 40
MODELS |= {
    "ministral3": (
        "ministral3",
        dict(
            head_dim=10,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1000000.0,
                factor=4.0,
                original_max_position_embeddings=ORIGINAL,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.1,
            ),
        ),
        torch.float32,
        "10GB",
    ),
    "olmo2": ("olmo2", dict(), torch.float32, "10GB"),
    "olmo3": (
        "olmo3",
        dict(
            num_hidden_layers=5,
            sliding_window=6,
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=1000.0, factor=2.0),
                sliding_attention=dict(rope_type="default", rope_theta=1000.0),
            ),
        ),
        torch.float32,
        "10GB",
    ),
    "phi3": ("phi3", dict(sliding_window=9), torch.float32, "10GB"),
    "phi4_mini": (
        "phi3",
        dict(
            hidden_size=64,
            intermediate_size=40,
            tie_word_embeddings=True,
            original_max_position_embeddings=ORIGINAL,
            rope_parameters=dict(
                rope_type="longrope",
                rope_theta=10000.0,
                partial_rotary_factor=0.75,
                short_factor=[1.0, 1.1, 1.25, 1.5, 1.75, 2.0],
                long_factor=[1.0, 2.0, 4.0, 8.0, 12.0, 16.0],
            ),
        ),
        torch.float32,
        "10GB",
    ),
}
MODELS |= {
    "gemma3_whole": ("gemma3", dict(model_type="gemma3_text", **MODELS["gemma3"][1]), torch.float32, "10GB"),
    "mistral3": ("mistral3", dict(model_type="ministral3", **MODELS["ministral3"][1]), torch.float32, "10GB"),
}


def build(kind: str, settings: dict) -> torch.nn.Module:
    """Builds a model. Vision models get the smallest possible encoder, since only text goes through them here."""
    if kind == "qwen2_vl":
        eyes = dict(depth=1, embed_dim=16, hidden_size=SIZES["hidden_size"], num_heads=2, mlp_ratio=1)
        text = {**SIZES, **settings, "initializer_range": 0.3}
        return Qwen2VLForConditionalGeneration(AutoConfig.for_model(kind, text_config=text, vision_config=eyes))
    if kind in WHOLE:
        text = {**SIZES, **settings, "initializer_range": 0.3}
        config = AutoConfig.for_model(kind, text_config=text, **WHOLE[kind], tie_word_embeddings=kind == "gemma3")
        return AutoModelForImageTextToText.from_config(config, attn_implementation="eager")
    config = AutoConfig.for_model(kind, **{**SIZES, **settings}, initializer_range=0.3)
    if kind == "emu3_text_model":
        return Emu3ForCausalLM(config)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager")


def main() -> None:
    for seed, (name, (kind, settings, dtype, shard)) in enumerate(MODELS.items()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        torch.manual_seed(seed)
        model = build(kind, settings).eval()
        for key, value in model.named_parameters():
            if "norm" in key or "bias" in key:
                value.data.add_(0.2 * torch.randn_like(value))
        folder = ROOT / name
        shutil.rmtree(folder, ignore_errors=True)
        model.to(dtype).save_pretrained(folder, max_shard_size=shard)
        # The model is computed in float32 with the file's weights; converting the model itself would also round its rotary frequencies.
        model = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        ids = torch.randint(3, SIZES["vocab_size"], (2, LENGTH))
        with torch.no_grad():
            logits = model(ids).logits
            longer = model.generate(ids, max_new_tokens=NEW, do_sample=False, eos_token_id=None, pad_token_id=0)
        (folder / "generation_config.json").unlink(missing_ok=True)
        expected = {
            "transformers": transformers.__version__,
            "ids": ids.tolist(),
            "logits": [[[round(x, 6) for x in row] for row in rows] for rows in logits.tolist()],
            "continued": longer[:, LENGTH:].tolist(),
        }
        (folder / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
