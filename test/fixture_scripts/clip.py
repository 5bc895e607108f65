"""Makes the fixtures of test/rewards/terms/clip: a tiny CLIP exported to ONNX, its tokenizer, and what Pillow and transformers compute with it.

    python -m venv /tmp/clip && /tmp/clip/bin/pip install torch numpy pillow transformers onnx onnxscript
    /tmp/clip/bin/python test/fixture_scripts/clip.py

The weights are random and large enough that images and prompts differ; everything is made anew from fixed seeds.
"""

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import torch
from PIL import Image
from transformers import CLIPConfig, CLIPModel, CLIPTokenizer
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

ROOT = Path(__file__).resolve().parents[2] / "test" / "rewards" / "terms" / "clip" / "fixtures"
MODEL = ROOT / "tiny_clip"
EDGE = 32
CONTEXT = 20

TEXT = """a photo of a red circle on a white table, the red square is left of the blue circle, make the sky more dramatic and
the water calm, replace the dog with a cat, remove the hat from the man, add three green trees behind the house, change the
colour of the car to yellow, a painting of a small village at night, highly detailed, they're standing near the window"""

PROMPTS = [
    "a photo of a red circle",
    "Replace the DOG with a cat!",
    "",
    "   \t\n ",
    "they're we've I'll don't it's 'S 'LL",
    "caf\u00e9 cafe\u0301 na\u00efve Stra\u00dfe",
    "\u0130stanbul \u03a3\u0391\u03a3 \u039f\u0394\u039f\u03a3, \u1e9e",
    "\u65e5\u672c\u8a9e \u306e \u30c6\u30b9\u30c8 \ud55c\uad6d\uc5b4 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0939\u093f\u0928\u094d\u0926\u0940",
    "\U0001f600 \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    "3.14159 100% \u00bd \u2167 x\u00b2 2024-01-01",
    "a\u0085b \ufeffc\u200bd\u00a0e\u3000f\u2028g",
    "<|startoftext|>a<|endoftext|> b <|ENDOFTEXT|>'s </w>",
    "\u0000\u0001\u007f ... ?! \u201cquoted\u201d don\u2019t",
    "the " * 17 + "red",
    "the " * 18 + "red",
    "the " * 100,
    "supercalifragilisticexpialidocious" * 3,
]

# (width, height, kind of picture, size, crop size); None for the sizes of clip-vit-base-patch32.
PICTURES = [
    (320, 240, "bands", None, None),
    (100, 50, "bands", None, None),
    (64, 48, "noise", EDGE, EDGE),
    (48, 64, "noise", EDGE, EDGE),
    (33, 33, "noise", EDGE, EDGE),
    (31, 57, "noise", EDGE, EDGE),
    (7, 5, "noise", EDGE, EDGE),
    (1, 1, "noise", EDGE, EDGE),
    (32, 75, "noise", EDGE, EDGE),
    (32, 32, "noise", EDGE, EDGE),
    (101, 67, "noise", 33, 31),
    (50, 40, "noise", 21, 32),
    (40, 61, "noise", {"height": 29, "width": 37}, EDGE),
    (200, 3, "bands", EDGE, EDGE),
    (40, 130, "noise", EDGE, EDGE),
]


def picture(width, height, kind):
    """Pixels that can be made identically in any language: bands of every frequency, or noise of a linear congruential generator."""
    if kind == "bands":
        y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
        return ((x * (c + 2) + y * (6 - 2 * c) + ((x * y) >> 3)) & 255).astype(np.uint8)
    state, out = 12345, np.empty(width * height * 3, np.uint8)
    for i in range(out.size):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        out[i] = state >> 16 & 255
    return out.reshape(height, width, 3)


def sha256(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def pixels():
    cases = []
    for i, (width, height, kind, size, crop) in enumerate(PICTURES):
        sizes = {}
        if size is not None:
            sizes["size"] = size if isinstance(size, dict) else {"shortest_edge": size}
            sizes["crop_size"] = {"height": crop, "width": crop}
        image = Image.fromarray(picture(width, height, kind))
        levels = CLIPImageProcessorPil(**sizes, do_rescale=False, do_normalize=False)(image)["pixel_values"][0]
        values = CLIPImageProcessorPil(**sizes)(image)["pixel_values"][0]
        assert levels.dtype == np.uint8 and values.dtype == np.float32
        file = f"levels_{i}.png"
        Image.fromarray(levels.transpose(1, 2, 0)).save(ROOT / file, optimize=True)
        cases.append({"width": width, "height": height, "kind": kind, "settings": sizes, "levels": file, "values_sha256": sha256(values)})
    (ROOT / "pixels.json").write_text(json.dumps(cases, indent=1) + "\n")


def byte_letters():
    """The printable character for every byte, as in GPT-2 and CLIP."""
    printable = [*range(33, 127), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printable]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(len(rest))]


def learn_merges(count):
    """Byte-pair merges of TEXT, in the order of their frequency."""
    words = Counter(tuple(word[:-1]) + (word[-1] + "</w>",) for word in TEXT.replace(",", " ,").replace("'", " '").split())
    merges = []
    while len(merges) < count:
        pairs = Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += n
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        merged = Counter()
        for word, n in words.items():
            out, i = [], 0
            while i < len(word):
                step = 2 if word[i : i + 2] == best else 1
                out.append("".join(word[i : i + step]))
                i += step
            merged[tuple(out)] += n
        words = merged
    return merges


def tokenizer():
    merges = learn_merges(300)
    letters = byte_letters()
    tokens = letters + [letter + "</w>" for letter in letters] + ["".join(pair) for pair in merges] + ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    assert len(vocabulary) == len(tokens)
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=CONTEXT)


def tiny_model(words):
    shared = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "initializer_factor": 4.0}
    config = CLIPConfig(
        text_config={
            **shared,
            "hidden_size": 8,
            "vocab_size": len(words),
            "max_position_embeddings": CONTEXT,
            "bos_token_id": words.bos_token_id,
            "eos_token_id": words.eos_token_id,
            "pad_token_id": words.pad_token_id,
        },
        vision_config={**shared, "hidden_size": 8, "image_size": EDGE, "patch_size": 8},
        projection_dim=8,
        initializer_factor=4.0,
    )
    torch.manual_seed(7)
    return CLIPModel(config).eval()


class Text(torch.nn.Module):
    def __init__(self, clip):
        super().__init__()
        self.clip = clip

    def forward(self, input_ids):
        return self.clip.text_projection(self.clip.text_model(input_ids=input_ids).pooler_output)


class Vision(torch.nn.Module):
    def __init__(self, clip):
        super().__init__()
        self.clip = clip

    def forward(self, pixel_values):
        return self.clip.visual_projection(self.clip.vision_model(pixel_values=pixel_values).pooler_output)


class Both(torch.nn.Module):
    def __init__(self, clip):
        super().__init__()
        self.clip = clip

    def forward(self, input_ids, pixel_values, attention_mask):
        out = self.clip(input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask)
        return out.logits_per_image, out.logits_per_text, out.text_embeds, out.image_embeds


def export(model, words):
    """Files, names and free dimensions as `optimum-cli export onnx` writes them; the halves beside the whole as on the Hub."""
    (MODEL / "onnx").mkdir(parents=True)
    tokens = words(["a red circle", "the dog"], padding="max_length", return_tensors="pt")
    images = torch.randn(3, 3, EDGE, EDGE)
    ids_axes = {0: "text_batch_size", 1: "sequence_length"}
    image_axes = {0: "image_batch_size"}

    def write(module, arguments, name, inputs, outputs):
        torch.onnx.export(
            module,
            arguments,
            MODEL / "onnx" / name,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes={**inputs, **outputs},
            opset_version=17,
            dynamo=False,
        )
        graph = onnx.load(MODEL / "onnx" / name)
        for node in graph.graph.node:
            node.ClearField("doc_string")
            node.ClearField("metadata_props")
        onnx.save(graph, MODEL / "onnx" / name)

    write(
        Both(model),
        (tokens["input_ids"], images, tokens["attention_mask"]),
        "model.onnx",
        {"input_ids": ids_axes, "pixel_values": image_axes, "attention_mask": ids_axes},
        {
            "logits_per_image": {0: "image_batch_size", 1: "text_batch_size"},
            "logits_per_text": {0: "text_batch_size", 1: "image_batch_size"},
            "text_embeds": {0: "text_batch_size"},
            "image_embeds": {0: "image_batch_size"},
        },
    )
    write(Text(model), (tokens["input_ids"],), "text_model.onnx", {"input_ids": ids_axes}, {"text_embeds": {0: "text_batch_size"}})
    write(Vision(model), (images,), "vision_model.onnx", {"pixel_values": image_axes}, {"image_embeds": image_axes})
    model.config.to_json_file(MODEL / "config.json")
    words.save_pretrained(MODEL)


def main():
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    pixels()
    words = tokenizer()
    model = tiny_model(words)
    export(model, words)
    processor = CLIPImageProcessorPil(size={"shortest_edge": EDGE}, crop_size={"height": EDGE, "width": EDGE})
    processor.save_pretrained(MODEL)

    tokens = [words(prompt, truncation=True, max_length=CONTEXT, padding="max_length") for prompt in PROMPTS]
    expected = [{"prompt": p, "ids": t["input_ids"], "mask": t["attention_mask"]} for p, t in zip(PROMPTS, tokens)]
    (ROOT / "tokens.json").write_text(json.dumps(expected, indent=1) + "\n")

    sizes = [(64, 48, "bands"), (31, 57, "noise"), (7, 5, "bands"), (32, 32, "noise")]
    images = torch.tensor(np.stack([processor(Image.fromarray(picture(*size)))["pixel_values"][0] for size in sizes]))
    with torch.no_grad():
        out = model(
            input_ids=torch.tensor([t["input_ids"] for t in tokens]),
            attention_mask=torch.tensor([t["attention_mask"] for t in tokens]),
            pixel_values=images,
        )
    cosines = (out.image_embeds @ out.text_embeds.T).double().tolist()
    (ROOT / "cosines.json").write_text(
        json.dumps({"images": [{"width": w, "height": h, "kind": k} for w, h, k in sizes], "cosines": cosines}) + "\n"
    )
    print("cosines from", min(map(min, cosines)), "to", max(map(max, cosines)))


if __name__ == "__main__":
    main()
