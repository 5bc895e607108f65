"""Makes the fixtures of test/recipes/image_edit_tokens/emu3: a small Emu3 of random weights as transformers saves it, its tokenizer in both
forms that are published, and samples as EARL saves them.

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch transformers onnx onnxscript onnxruntime tiktoken pillow
    /tmp/torch/bin/python test/fixture_scripts/emu3.py

expected.json holds Python's results for them.
"""

import base64
import json
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import tiktoken
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Emu3Config, Emu3ForConditionalGeneration, Emu3ImageProcessor, PreTrainedTokenizerFast

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = REPOSITORY / "test" / "recipes" / "image_edit_tokens" / "emu3"
CODES = 40
GRID = (3, 4)

# How Emu3's own tokenizer splits texts, and its special tokens.
PATTERN = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205))]
VISION = ["<|image token|>", "<|image start|>", "<|image end|>", *(f"<|visual token {i:06d}|>" for i in range(CODES))]
THINK = " Let's think step by step. <|start thinking|>"

INSTRUCTIONS = ["remove the red circle", "make the sky blue", "turn the cat into a dog", "add a hat", "what if it were 1987?", "move the box left"]
TEXTS = [
    *INSTRUCTIONS,
    "",
    " ",
    "It's  THE cat's hat\n\n and 12345 dogs\t",
    "cafe\u0301 caf\u00e9 \U0001f600 \u4f60\u597d",
    "<|image start|>12*7<|image token|><|visual token 000007|><|extra_200|>",
    "a<|endoftext|>b <|start thinking|> c<|end thinking|>",
    "don't WE'LL 'S trailing   ",
]


def train_bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    # Numbers are split into single digits, as in Emu3.
    corpus = [*INSTRUCTIONS, "the the cat's dog hat, and don't think step by step", THINK, "caf\u00e9"] * 3
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def bytes_of(token: str, alphabet: dict[str, int]) -> bytes:
    return bytes(alphabet[character] for character in token)


def byte_alphabet() -> dict[str, int]:
    """GPT-2's characters for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


def write_tokenizers() -> tuple[PreTrainedTokenizerFast, tiktoken.Encoding]:
    bpe = train_bpe()
    words = sorted(bpe.get_vocab().items(), key=lambda pair: pair[1])
    first = len(words)
    special = {token: first + i for i, token in enumerate([*SPECIAL, *VISION])}
    ranks = {bytes_of(token, byte_alphabet()): rank for token, rank in words}
    folder = ROOT / "tiktoken"
    folder.mkdir()
    (folder / "emu3.tiktoken").write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()))
    (folder / "emu3_vision_tokens.txt").write_text("".join(f"{token}\n" for token in VISION))
    names = dict(bos_token="<|extra_203|>", eos_token="<|extra_204|>", pad_token="<|endoftext|>")
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, "tokenizer_class": "Emu3Tokenizer"}, indent=2) + "\n")

    json_form = json.loads(bpe.to_str())
    # As in transformers' conversion, Emu3's special tokens are both in the vocabulary and among the added tokens.
    json_form["model"]["vocab"] |= special
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    json_form["added_tokens"] = [{"id": i, "content": token, **flags} for token, i in special.items()]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(json_form)),
        **names,
        clean_up_tokenization_spaces=False,
        extra_special_tokens=dict(boi_token="<|image start|>", eoi_token="<|image end|>", image_wrapper_token="<|image token|>", eof_token="<|extra_201|>"),
    )
    return fast, tiktoken.Encoding("Emu3", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)


def write_model(tokenizer: PreTrainedTokenizerFast) -> Emu3ForConditionalGeneration:
    torch.manual_seed(0)
    size = len(tokenizer)
    ids = {key: tokenizer.convert_tokens_to_ids(getattr(tokenizer, key)) for key in ("bos_token", "eos_token", "pad_token")}
    ids = {f"{key}_id": value for key, value in ids.items()}
    config = Emu3Config(
        text_config=dict(
            vocab_size=size,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=256,
            initializer_range=0.3,
            **ids,
        ),
        vq_config=dict(
            codebook_size=CODES,
            base_channels=32,
            channel_multiplier=[1, 1],
            num_res_blocks=1,
            attn_resolutions=[1],
            hidden_size=32,
        ),
        vocabulary_map=tokenizer.get_vocab(),
    )
    model = Emu3ForConditionalGeneration(config).eval()
    for name, value in model.model.vqmodel.named_buffers():
        if name.endswith("running_mean"):
            value.normal_(0, 0.2)
        if name.endswith("running_var"):
            value.uniform_(0.5, 2)
    folder = ROOT / "model"
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    Emu3ImageProcessor(image_mean=[0.5, 0.4, 0.5], image_std=[0.5, 0.5, 0.6]).save_pretrained(folder)
    return Emu3ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def image_text(codes: np.ndarray) -> str:
    """An image as it is written in EARL's prompts."""
    rows = ["".join(f"<|visual token {code:06d}|>" for code in row) for row in codes]
    return f"<|image start|>{len(codes)}*{len(codes[0])}<|image token|>" + "<|extra_200|>".join(rows) + "<|extra_200|><|extra_201|><|image end|>"


def earl_prompt(codes: np.ndarray, instruction: str, prefill: str) -> str:
    return "<|extra_203|>" + image_text(codes) + instruction + prefill


def write_samples(random: np.random.Generator) -> list[dict]:
    samples = []
    for split, count in (("train", 6), ("validation", 3)):
        folder = ROOT / "data" / split
        (folder / "list").mkdir(parents=True)
        names = []
        for i in range(count):
            source = random.integers(0, CODES, GRID)
            target = source.copy()
            target[i % GRID[0]] = random.integers(0, CODES, GRID[1])
            sample = {
                "edit_id": f"{split}_{i}.pth",
                "original_image": source,
                "edited_image": target,
                "CoT": {"thinking": f"the {i} goes away"},
                "instruction": INSTRUCTIONS[i],
            }
            torch.save(sample, folder / sample["edit_id"])
            names.append(sample["edit_id"])
            samples.append(sample)
        # The prefix is the folder in which the files were made, which exists on no other machine.
        listed = {"prefix": f"/scratch/emu3/{split}/feature", "path_list": names}
        (folder / "list" / "tokenized_datalist.json").write_text(json.dumps(listed) + "\n")
    return samples


def main() -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    fast, original = write_tokenizers()
    model = write_model(fast)
    random = np.random.default_rng(7)
    samples = write_samples(random)

    source = samples[0]["original_image"]
    vq, processor = model.model.vqmodel, Emu3ImageProcessor.from_pretrained(ROOT / "model")
    patch = vq.spatial_scale_factor
    picture = random.integers(0, 256, (5 * patch, 3 * patch, 3), dtype=np.uint8)
    pixels = processor(picture, do_resize=False, return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        codes = vq.encode(pixels, torch.tensor([[5 * patch, 3 * patch]])).image_tokens[0]
        drawn = vq.decode(torch.tensor(source)[None])
        mapped = model.vocabulary_mapping.convert_img2bpe(torch.tensor(source))
        prompt = fast.encode(earl_prompt(source, samples[0]["instruction"], "<|image start|>"))
        logits = model(torch.tensor([prompt])).logits[0, -1]
    (image,) = processor.postprocess([drawn[0].numpy()], return_tensors="PIL.Image.Image")["pixel_values"]
    image = np.asarray(image)
    thought = f" {'thinking: the 0 goes away'}<|end thinking|>"
    expected = {
        "transformers": transformers.__version__,
        "texts": [
            {
                "text": text,
                "ids": fast.encode(text),
                "decoded": fast.decode(fast.encode(text)),
                "original": original.encode(unicodedata.normalize("NFC", text), allowed_special="all", disallowed_special=()),
            }
            for text in TEXTS
        ],
        "prompts": [
            {
                "codes": sample["original_image"].tolist(),
                "instruction": sample["instruction"],
                "prefill": prefill,
                "ids": fast.encode(earl_prompt(sample["original_image"], sample["instruction"], prefill)),
                "original": original.encode(earl_prompt(sample["original_image"], sample["instruction"], prefill), allowed_special="all"),
            }
            for sample in samples[:3]
            for prefill in ("<|image start|>", THINK)
        ],
        "answer": {
            "codes": samples[0]["edited_image"].tolist(),
            "rationale": "thinking: the 0 goes away",
            "ids": fast.encode(thought + image_text(samples[0]["edited_image"]) + "<|extra_204|>"),
            "original": original.encode(thought + image_text(samples[0]["edited_image"]) + "<|extra_204|>", allowed_special="all"),
        },
        "mapped": mapped.tolist(),
        "logits": [round(x, 6) for x in logits.tolist()],
        "encoded": {"height": picture.shape[0], "width": picture.shape[1], "pixels": picture.flatten().tolist(), "codes": codes.tolist()},
        "decoded": {"codes": source.tolist(), "height": image.shape[0], "width": image.shape[1], "pixels": image.flatten().tolist()},
    }
    (ROOT / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")


main()
