"""Makes test/train/environments/qwen_text: a small text encoder of Qwen-Image with random weights, in the folders of its pipeline.

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch transformers diffusers
    /tmp/torch/bin/python test/fixture_scripts/qwen_text.py

expected.json holds the embeddings that diffusers' QwenImagePipeline makes of two prompts.
"""

import json
import shutil
from pathlib import Path

import torch
from diffusers import QwenImagePipeline
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

ROOT = Path(__file__).resolve().parents[2] / "test" / "train" / "environments" / "qwen_text"
PROMPTS = {"short": "a red sign that says BAT", "long": "x" * 1200}


def letters(folder: Path) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def encoder(folder: Path) -> Qwen2_5_VLForConditionalGeneration:
    text = {"vocab_size": 300, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "bos_token_id": None, "eos_token_id": None}
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [1, 1, 2]}
    vision = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 16}
    config = Qwen2_5_VLConfig(text_config={**text, "num_key_value_heads": 1, "rope_parameters": rope}, vision_config=vision)
    model = Qwen2_5_VLForConditionalGeneration(config)
    with torch.no_grad():
        # Larger weights tell one prompt from another.
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
    model.eval().save_pretrained(folder)
    return model


def main() -> None:
    torch.manual_seed(0)
    shutil.rmtree(ROOT, ignore_errors=True)
    tokenizer, model = letters(ROOT / "tokenizer"), encoder(ROOT / "text_encoder")
    pipeline = QwenImagePipeline(scheduler=None, vae=None, text_encoder=model, tokenizer=tokenizer, transformer=None)
    expected = {}
    for name, prompt in PROMPTS.items():
        with torch.no_grad():
            states = pipeline.encode_prompt(prompt, device="cpu", max_sequence_length=1024)[0][0]
        # The last states are enough, since they have attended to all others.
        expected[name] = {"prompt": prompt, "length": len(states), "last": states[-4:].tolist()}
    (ROOT / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
