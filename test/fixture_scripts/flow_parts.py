"""Makes the fixtures of test/train/environments/flow_parts: small text encoders of random weights, exported by scripts/export_flow_parts.

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch transformers onnx onnxscript onnxruntime
    /tmp/torch/bin/python test/fixture_scripts/flow_parts.py

expected.json holds the results of transformers for two prompts, from the models before their export.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    T5Config,
    T5EncoderModel,
)

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = REPOSITORY / "test" / "environments" / "flow_parts"
WORDS = ["<pad>", "<s>", "</s>", "<unk>", "a", "sign", "that", "says", "BAT", "red", "door"]
SHORT = "a red sign that says BAT"
LONG = " ".join(["a red door"] * 10)


def words(folder: Path, most: int) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    special = {"pad_token": "<pad>", "eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=most, **special).save_pretrained(folder)


def letters(folder: Path) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


def livelier(model):
    """Weights that tell one input from another."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
    return model.eval()


def flux(folder: Path) -> dict:
    words(folder / "tokenizer", 12)
    words(folder / "tokenizer_2", 20)
    small = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {"eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    clip = livelier(CLIPTextModel(CLIPTextConfig(vocab_size=16, max_position_embeddings=12, **small, **ids)))
    t5 = livelier(T5EncoderModel(T5Config(vocab_size=16, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2)))
    clip.save_pretrained(folder / "text_encoder")
    t5.save_pretrained(folder / "text_encoder_2")
    made = {}
    for prompt in (SHORT, LONG):
        ids = []
        for name in ("tokenizer_2", "tokenizer"):
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / name)
            found = tokenizer(prompt, padding="max_length", max_length=tokenizer.model_max_length, truncation=True)
            ids.append(torch.tensor([found["input_ids"]]))
        with torch.no_grad():
            text, pooled = t5(ids[0]).last_hidden_state, clip(ids[1]).pooler_output
        made[prompt] = {"text": text[0].tolist(), "pooled": pooled[0].tolist()}
    return made


def qwen(folder: Path, template: str, dropped: int) -> dict:
    letters(folder / "tokenizer")
    text = {"vocab_size": 300, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [1, 1, 2]}
    vision = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 16}
    config = Qwen2_5_VLConfig(text_config={**text, "num_key_value_heads": 1, "rope_parameters": rope}, vision_config=vision)
    model = livelier(Qwen2_5_VLForConditionalGeneration(config))
    model.save_pretrained(folder / "text_encoder")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "tokenizer")
    ids = torch.tensor([tokenizer(template.format(SHORT))["input_ids"]])
    with torch.no_grad():
        states = model(input_ids=ids, output_hidden_states=True).hidden_states[-1][0, dropped:]
    # The last states are enough, since they have attended to all others.
    return {"length": len(states), "last": states[-4:].tolist()}


def main() -> None:
    sys.path.insert(0, str(REPOSITORY / "scripts"))
    torch.manual_seed(0)
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    script = REPOSITORY / "scripts" / "export_flow_parts"
    known: dict = {"__name__": "export_flow_parts"}
    exec(compile(script.read_text(), str(script), "exec"), known)
    with tempfile.TemporaryDirectory() as made:
        source = Path(made)
        expected = {
            "prompts": {"short": SHORT, "long": LONG},
            "flux_text": flux(source / "flux"),
            "qwen_text": qwen(source / "qwen", known["QWEN_TEMPLATE"], known["QWEN_DROPPED"]),
        }
        for folder in ("flux", "qwen"):
            subprocess.run([sys.executable, script, source / folder, ROOT / f"{folder}_text"], check=True)
    (ROOT / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
