"""Makes the fixtures of test/compute/nets/vision and test/models/images: small vision-language models of random weights as transformers saves
them, what it computes with them, and pictures as its processors and Pillow resize and cut them.

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch torchvision transformers peft pillow
    /tmp/torch/bin/python test/fixture_scripts/vision.py [model type ...]

Without model types it makes all models, and the pictures.
"""

import base64
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from peft import LoraConfig, get_peft_model
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedTokenizerFast, Qwen3VLProcessor, Qwen3VLVideoProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize
from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize as smart_resize_clip
from transformers.video_utils import VideoMetadata

TESTS = Path(__file__).resolve().parents[2] / "test"
ROOT = TESTS / "compute" / "nets" / "vision" / "fixtures"
PICTURES = TESTS / "models" / "images" / "fixtures"

TEXT = dict(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
    rope_parameters=dict(rope_type="default", rope_theta=1000000.0, mrope_section=[1, 1, 2]),
    initializer_range=0.3,
)
EYES = dict(depth=3, num_heads=2, patch_size=4, temporal_patch_size=2, spatial_merge_size=2, in_channels=3)
IMAGE, VIDEO, START, END = 56, 57, 58, 59
# model type: other settings of its decoder
DECODERS = {
    "qwen3_vl": dict(
        num_hidden_layers=4,
        head_dim=16,
        rope_parameters=dict(rope_type="default", rope_theta=5000000.0, mrope_section=[4, 2, 2], mrope_interleaved=True),
    ),
}
# model type: the settings of its encoder
MODELS = {
    "qwen2_vl": dict(embed_dim=16, hidden_size=32, mlp_ratio=2, initializer_range=0.3),
    "qwen2_5_vl": dict(
        hidden_size=16,
        intermediate_size=24,
        out_hidden_size=32,
        window_size=16,
        fullatt_block_indexes=[1],
        tokens_per_second=2,
        initializer_range=0.3,
    ),
    "qwen3_vl": dict(
        hidden_size=16,
        intermediate_size=24,
        out_hidden_size=32,
        num_position_embeddings=25,
        deepstack_visual_indexes=[0, 2],
        initializer_range=0.3,
    ),
}
COLOURS = dict(image_mean=[0.5, 0.4, 0.3], image_std=[0.25, 0.3, 0.35])
# The pixels of a frame of the clips whose texts are compared.
FRAMES = dict(min_pixels=32 * 32 * 4, max_pixels=32 * 32 * 64)
LIMITS = dict(min_pixels=8 * 8 * 2, max_pixels=8 * 8 * 12)
# The pictures of the two prompts: kind, width and height before resizing, number of frames, seconds per frame.
PROMPTS = [
    [("image", 21, 30, 1, 0.0), ("image", 9, 14, 1, 0.0)],
    [("video", 26, 14, 5, 0.65)],
]
# Those of models whose clips have the time of each step in words: one image, three images of odd sizes, words alone, a clip.
TIMED = {
    "qwen3_vl": [
        [("image", 21, 30, 1, 0.0)],
        [("image", 9, 14, 1, 0.0), ("image", 11, 29, 1, 0.0), ("image", 16, 24, 1, 0.0)],
        [],
        [("video", 26, 14, 5, 0.65)],
    ],
}


def text64(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def resized_by_pillow(frame: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resizes to (width, height), columns before rows, as Pillow did up to version 12; later versions take rows first if they shrink more."""
    columns = Image.fromarray(frame).resize((size[0], frame.shape[0]), Image.Resampling.BICUBIC)
    return np.asarray(columns.resize(size, Image.Resampling.BICUBIC))


def patches_of(frames: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Resized frames [T, H, W, 3] of bytes as pixel_values, in the order that transformers' video processor documents."""
    x = (frames.astype(np.float64) / 255 - COLOURS["image_mean"]) / np.array(COLOURS["image_std"])
    if len(x) % 2:
        x = np.concatenate([x, x[-1:]])
    t, h, w, _ = x.shape
    grid = [t // 2, h // 4, w // 4]
    x = x.transpose(0, 3, 1, 2).reshape(grid[0], 2, 3, grid[1] // 2, 2, 4, grid[2] // 2, 2, 4)
    x = x.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
    return x.reshape(-1, 3 * 2 * 16).astype(np.float32), grid


def prompts(of: list[list[tuple]], timed: bool = False) -> list[dict]:
    random = np.random.default_rng(7)
    processor = Qwen2VLImageProcessorPil(patch_size=4, merge_size=2, **LIMITS, **COLOURS)
    made = []
    for pictures in of:
        ids, kinds, given = [int(x) for x in random.integers(3, 55, 4)], [0] * 4, []
        for kind, width, height, count, seconds in pictures:
            raw = random.integers(0, 256, (count, height, width, 3), dtype=np.uint8)
            # With noise alone, a flipped or rotated picture would not be noticed.
            raw[:, : height // 2] //= 3
            size = smart_resize(height, width, 8, LIMITS["min_pixels"], LIMITS["max_pixels"])
            if timed and kind == "video":
                size = smart_resize_clip(count, height, width, 2, 8, count * LIMITS["min_pixels"], count * LIMITS["max_pixels"])
            frames = np.stack([resized_by_pillow(f, size[::-1]) for f in raw])
            pixels, grid = patches_of(frames if kind == "video" else np.repeat(frames, 2, 0))
            if kind == "image":
                out = processor(images=[Image.fromarray(raw[0])], return_tensors="np")
                assert out["image_grid_thw"].tolist() == [grid]
                assert np.abs(out["pixel_values"] - pixels).max() < 1e-5
            tokens = grid[0] * grid[1] * grid[2] // 4
            if timed and kind == "video":
                ids, kinds = ids + [START], kinds + [0]
                for _ in range(grid[0]):
                    ids += [int(x) for x in random.integers(3, 55, 3)] + [START] + [VIDEO] * (tokens // grid[0]) + [END]
                    kinds += [0] * 4 + [2] * (tokens // grid[0]) + [0]
                ids, kinds = ids + [END] + [int(x) for x in random.integers(3, 55, 2)], kinds + [0] * 3
            else:
                ids += [START] + [IMAGE if kind == "image" else VIDEO] * tokens + [END] + [int(x) for x in random.integers(3, 55, 2)]
                kinds += [0] + [1 if kind == "image" else 2] * tokens + [0] * 3
            given.append(
                dict(
                    kind=kind,
                    width=width,
                    height=height,
                    secondsPerFrame=seconds,
                    raw=[text64(frame) for frame in raw],
                    grid=grid,
                    pixels=text64(pixels),
                )
            )
        answers = random.integers(3, 55, (2, 5)).tolist()
        made.append(dict(ids=ids, kinds=kinds, pictures=given, answers=answers))
    return made


def inputs_of(prompt: dict, answer: list[int]) -> dict:
    ids = torch.tensor([prompt["ids"] + answer])
    out = dict(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=torch.tensor([prompt["kinds"] + [0] * len(answer)]),
    )
    for kind, pixels, grid in [
        ("image", "pixel_values", "image_grid_thw"),
        ("video", "pixel_values_videos", "video_grid_thw"),
    ]:
        some = [p for p in prompt["pictures"] if p["kind"] == kind]
        if some:
            flat = [np.frombuffer(base64.b64decode(p["pixels"]), np.float32).reshape(-1, 96) for p in some]
            out[pixels] = torch.tensor(np.concatenate(flat))
            out[grid] = torch.tensor([p["grid"] for p in some])
    return out


def with_adapter(model: torch.nn.Module, folder: Path, given: list[dict]) -> dict:
    """Saves a random adapter of every linear layer, and returns the logits and gradients of the adapted model."""
    adapted = get_peft_model(model, LoraConfig(r=3, lora_alpha=6, target_modules="all-linear"))
    for name, value in adapted.named_parameters():
        if "lora_B" in name:
            value.data.normal_(0, 0.2)
    shutil.rmtree(folder, ignore_errors=True)
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink()
    logits, loss = [], torch.zeros(())
    for prompt in given:
        logits.append([])
        for answer in prompt["answers"]:
            model.model.rope_deltas = None
            rows = adapted(**inputs_of(prompt, answer)).logits[0, -len(answer) - 1 : -1]
            logits[-1].append([[round(x, 6) for x in row] for row in rows.tolist()])
            loss = loss - rows.log_softmax(-1)[torch.arange(len(answer)), torch.tensor(answer)].sum()
    loss.backward()
    gradients = {
        name.removeprefix("base_model.model.").replace(".default.", "."): text64(value.grad.numpy())
        for name, value in adapted.named_parameters()
        if "lora_" in name and ("layers" not in name or "layers.1." in name)
    }
    return dict(logits=logits, gradients=gradients)


def token_counts() -> dict:
    """Heights and widths, and the tokens of such images with the sizes and limits of Qwen3-VL's published processors."""
    limits = dict(shortest_edge=256 * 256, longest_edge=4096 * 4096)
    processor = Qwen2VLImageProcessorPil(patch_size=16, merge_size=2, size=limits)
    random = np.random.default_rng(11)
    images = []
    while len(images) < 200:
        height, width = (int(side) for side in np.exp(random.uniform(np.log(2), np.log(9000), 2)))
        if max(height, width) <= 200 * min(height, width):
            images.append([height, width, int(processor.get_number_of_image_patches(height, width)) // 4])
    return dict(limits=limits, images=images)


def clips() -> dict:
    """Clips by size, frames of the file, its rate and the frames shown, with the text that Qwen3-VL's processor writes for them."""
    random = np.random.default_rng(13)
    names = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    words = Tokenizer(WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", additional_special_tokens=names)
    processor = Qwen3VLProcessor(Qwen2VLImageProcessorPil(patch_size=16, merge_size=2), tokenizer, Qwen3VLVideoProcessor())
    made = []
    while len(made) < 200:
        height, width = (int(side) for side in np.exp(random.uniform(np.log(8), np.log(700), 2)))
        if max(height, width) > 200 * min(height, width):
            continue
        frames, rate, total = int(random.integers(2, 17)), float(random.choice([8, 10, 24, 25, 30, 60])), int(random.integers(17, 2000))
        shown = sorted(int(x) for x in random.choice(total, frames, replace=False))
        low, high = FRAMES["min_pixels"] * frames, FRAMES["max_pixels"] * frames
        rows, columns = smart_resize_clip(frames, height, width, 2, 32, low, high)
        steps = -(-frames // 2)
        grid = torch.tensor([[steps, rows // 16, columns // 16]])
        patches = processor.video_processor.get_num_of_video_patches(
            frames, height, width, dict(size=dict(shortest_edge=low, longest_edge=high))
        )
        assert grid.prod() == patches
        metadata = VideoMetadata(total_num_frames=total, fps=rate, frames_indices=list(shown))
        replaced = processor.replace_video_token(dict(video_grid_thw=grid, video_metadata=[metadata]), 0)
        text, _ = processor.get_text_with_replacements(["<|vision_start|><|video_pad|><|vision_end|>"], videos_replacements=[replaced])
        short = re.sub(r"(<\|video_pad\|>)+", lambda run: f"{len(run[0]) // len(names[3])}", text[0])
        made.append(dict(height=height, width=width, rate=rate, shown=shown, text=short))
    return dict(limits=FRAMES, clips=made)


def main() -> None:
    asked = sys.argv[1:] or list(MODELS)
    for seed, (kind, eyes) in enumerate(MODELS.items()):
        if kind not in asked:
            continue
        given = prompts(TIMED.get(kind, PROMPTS), kind in TIMED)
        torch.manual_seed(seed)
        config = AutoConfig.for_model(
            kind,
            text_config={**TEXT, **DECODERS.get(kind, {})},
            vision_config={**EYES, **eyes},
            image_token_id=IMAGE,
            video_token_id=VIDEO,
            vision_start_token_id=START,
            vision_end_token_id=END,
            tie_word_embeddings=False,
        )
        model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
        for name, value in model.named_parameters():
            if "norm" in name or "bias" in name or "ln_q" in name or "pos_embed" in name:
                value.data.add_(0.2 * torch.randn_like(value))
        folder = ROOT / kind
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        loss = torch.zeros(())
        logits, hidden, states = [], [], []
        for prompt in given:
            more = {}
            if kind == "qwen2_5_vl":
                more = dict(second_per_grid_ts=[2 * p["secondsPerFrame"] for p in prompt["pictures"] if p["kind"] == "video"] or None)
            logits.append([])
            for answer in prompt["answers"]:
                model.model.rope_deltas = None
                inputs = inputs_of(prompt, answer)
                features = model.model(**inputs, **more).last_hidden_state
                if answer is prompt["answers"][0] and kind in TIMED:
                    model.model.rope_deltas = None
                    outputs = model.model(**inputs, output_hidden_states=True).hidden_states
                    states.append([text64(x[0].detach().numpy()) for x in outputs[1:-1]])
                hidden.append(text64(features[0].detach().numpy()))
                rows = model.lm_head(features)[0, -len(answer) - 1 : -1]
                logits[-1].append([[round(x, 6) for x in row] for row in rows.tolist()])
                picked = rows.log_softmax(-1)[torch.arange(len(answer)), torch.tensor(answer)]
                loss = loss - picked.sum()
        loss.backward()
        gradients = {
            name: text64(value.grad.numpy())
            for name, value in model.named_parameters()
            if value.grad is not None and (name.startswith("model.visual") or "layers.0.self_attn" in name or "embed_tokens" in name)
        }
        expected = dict(
            transformers=transformers.__version__, logits=logits, hidden=hidden, loss=loss.item(), gradients=gradients
        )
        if kind in TIMED:
            Qwen2VLImageProcessorPil(patch_size=4, merge_size=2, **LIMITS, **COLOURS).save_pretrained(folder)
            (folder / "prompts.json").write_text(json.dumps(dict(limits=LIMITS, colours=COLOURS, prompts=given)) + "\n")
            expected["states"] = states
            expected["adapted"] = with_adapter(model, ROOT / f"{kind}_adapter", given)
        (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / "token_counts.json").write_text(json.dumps(token_counts()) + "\n")
    (PICTURES / "clips.json").write_text(json.dumps(clips()) + "\n")
    if sys.argv[1:]:
        return
    (ROOT / "prompts.json").write_text(json.dumps(dict(limits=LIMITS, colours=COLOURS, prompts=prompts(PROMPTS))) + "\n")

    random = np.random.default_rng(3)
    sizes = [((17, 11), (34, 22)), ((40, 31), (9, 14)), ((13, 29), (13, 8)), ((25, 25), (60, 7))]
    resized = []
    for before, after in sizes:
        raw = random.integers(0, 256, (before[1], before[0], 3), dtype=np.uint8)
        pillow = resized_by_pillow(raw, after)
        native = torch.nn.functional.interpolate(
            torch.tensor(raw).permute(2, 0, 1)[None], size=after[::-1], mode="bicubic", antialias=True
        )[0].permute(1, 2, 0)
        print("resize", before, after, "native uint8 differs by at most", int((native.int() - torch.tensor(pillow.copy()).int()).abs().max()),
              "in", float((native != torch.tensor(pillow.copy())).float().mean()))
        resized.append(dict(before=before, after=after, raw=text64(raw), pillow=text64(pillow)))
    smart = [
        dict(height=h, width=w, factor=f, min_pixels=low, max_pixels=high, expected=list(smart_resize(h, w, f, low, high)))
        for h, w, f, low, high in [
            (480, 640, 28, 3136, 1003520),
            (42, 70, 28, 3136, 1003520),
            (14, 98, 28, 784, 1003520),
            (3000, 200, 28, 3136, 100000),
            (10, 1900, 28, 3136, 12845056),
            (32, 32, 8, 64, 4096),
            (20, 12, 8, 64, 4096),
        ]
    ]
    (PICTURES / "resized.json").write_text(json.dumps(dict(resized=resized, smart=smart)) + "\n")


main()
