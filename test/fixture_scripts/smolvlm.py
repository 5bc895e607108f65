"""Makes the fixtures of SmolVLM in test/compute/nets/vision and test/models/images: a small model of random weights as transformers saves it,
what it computes, an adapter that PEFT saves, and images as its processor cuts and marks them.

    /tmp/torch/bin/python test/fixture_scripts/smolvlm.py

It needs torch, torchvision, transformers, peft, pillow and num2words.
"""

import base64
import json
import shutil
from pathlib import Path

import numpy as np
import torch
import transformers
from peft import LoraConfig, get_peft_model
from PIL import Image
from transformers import AutoModelForImageTextToText, SmolVLMConfig
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS / "compute" / "nets" / "vision" / "fixtures"
IMAGE, SIDE = 56, 16
PROCESSOR = dict(size=dict(longest_edge=64), max_image_size=dict(longest_edge=SIDE))
# The frames of each prompt, and the number of tokens of its answers.
PROMPTS = [(0, [5, 1]), (1, [5, 4]), (3, [1, 5])]

plain_resize = Image.Image.resize


def columns_first(self, size, resample=None, *rest, **more):
    """Columns before rows, as Pillow did up to version 12. Later versions take rows first if they shrink more."""
    return plain_resize(plain_resize(self, (size[0], self.height), resample), size, resample)


def text64(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def prompts() -> list[dict]:
    random = np.random.default_rng(5)
    made = []
    for frames, lengths in PROMPTS:
        ids, pictures = [int(x) for x in random.integers(3, 55, 4)], []
        for _ in range(frames):
            raw = random.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
            raw[: SIDE // 2] //= 3
            ids += [IMAGE] * 4 + [int(x) for x in random.integers(3, 55, 2)]
            pictures.append(text64(raw))
        made.append(dict(ids=ids, pictures=pictures, answers=[random.integers(3, 55, n).tolist() for n in lengths]))
    return made


def inputs_of(prompt: dict, answer: list[int]) -> dict:
    ids = torch.tensor([prompt["ids"] + answer])
    out = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
    if prompt["pictures"]:
        raw = [np.frombuffer(base64.b64decode(text), np.uint8).reshape(SIDE, SIDE, 3) for text in prompt["pictures"]]
        pixels = (np.stack(raw).astype(np.float64) / 255 - 0.5) / 0.5
        out["pixel_values"] = torch.tensor(pixels.transpose(0, 3, 1, 2)[None].astype(np.float32))
    return out


def computed(model: torch.nn.Module, given: list[dict], hidden: bool) -> dict:
    logits, states, loss = [], [], torch.zeros(())
    for prompt in given:
        logits.append([])
        for answer in prompt["answers"]:
            outputs = model(**inputs_of(prompt, answer), output_hidden_states=True)
            rows = outputs.logits[0, -len(answer) - 1 : -1]
            states.append(text64(outputs.hidden_states[-1][0].detach().numpy()))
            logits[-1].append([[round(x, 6) for x in row] for row in rows.tolist()])
            loss = loss - rows.log_softmax(-1)[torch.arange(len(answer)), torch.tensor(answer)].sum()
    loss.backward()
    return dict(logits=logits, loss=loss.item(), **(dict(hidden=states) if hidden else {}))


def gradients(model: torch.nn.Module, asked) -> dict:
    names = ((name.removeprefix("base_model.model.").replace(".default.", "."), value) for name, value in model.named_parameters())
    return {name: text64(value.grad.numpy()) for name, value in names if value.grad is not None and asked(name)}


def processed() -> dict:
    """The rows and columns that images of 200 sizes are cut into, and the parts of three of them."""
    Image.Image.resize = columns_first
    processor = SmolVLMImageProcessorPil(**PROCESSOR)
    random = np.random.default_rng(17)
    sizes, images = [], []
    for index in range(203):
        height, width = (int(side) for side in np.exp(random.uniform(np.log(2), np.log(300), 2)))
        raw = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        out = processor(images=[Image.fromarray(raw)], return_row_col_info=True, return_tensors="np")
        rows, columns = out["rows"][0][0], out["cols"][0][0]
        text = get_image_prompt_string(rows, columns, 4, "<fake_token_around_image>", "<image>", "<global-img>")
        if index < 200:
            sizes.append([height, width, text.count("<image>")])
        else:
            parts = np.round((out["pixel_values"][0] * 0.5 + 0.5) * 255).astype(np.uint8).transpose(0, 2, 3, 1)
            images.append(dict(height=height, width=width, raw=text64(raw), text=text, parts=[text64(part) for part in parts]))
    Image.Image.resize = plain_resize
    return dict(settings=PROCESSOR, sizes=sizes, images=images)


def main() -> None:
    torch.manual_seed(4)
    config = SmolVLMConfig(
        text_config=dict(
            model_type="llama",
            vocab_size=61,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            rms_norm_eps=1e-5,
            rope_parameters=dict(rope_type="default", rope_theta=100000.0),
            initializer_range=0.3,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        ),
        vision_config=dict(
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=3,
            num_attention_heads=2,
            image_size=SIDE,
            patch_size=4,
            initializer_range=0.3,
        ),
        scale_factor=2,
        image_token_id=IMAGE,
        tie_word_embeddings=False,
    )
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    for name, value in model.named_parameters():
        if "norm" in name or "bias" in name or "position" in name:
            value.data.add_(0.2 * torch.randn_like(value))
    given, folder = prompts(), ROOT / "smolvlm"
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    SmolVLMImageProcessorPil(**PROCESSOR).save_pretrained(folder)
    expected = computed(model, given, True)
    seen = ("vision_model", "connector", "layers.0.self_attn", "embed_tokens")
    expected["gradients"] = gradients(model, lambda name: any(part in name for part in seen))
    expected["transformers"] = transformers.__version__
    model.zero_grad()
    adapted = get_peft_model(model, LoraConfig(r=3, lora_alpha=6, target_modules="all-linear"))
    for name, value in adapted.named_parameters():
        if "lora_B" in name:
            value.data.normal_(0, 0.2)
    adapter = ROOT / "smolvlm_adapter"
    shutil.rmtree(adapter, ignore_errors=True)
    adapted.save_pretrained(adapter)
    (adapter / "README.md").unlink()
    expected["adapted"] = computed(adapted, given, False)
    expected["adapted"]["gradients"] = gradients(adapted, lambda name: "lora_" in name)
    (folder / "prompts.json").write_text(json.dumps(given) + "\n")
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    (TESTS / "models" / "images" / "fixtures" / "smolvlm.json").write_text(json.dumps(processed()) + "\n")


main()
