"""Makes the fixtures of CLIP and SigLIP computed from their own weights: small models of random weights, and what transformers makes of texts and pictures.

    python -m venv /tmp/clip && /tmp/clip/bin/pip install torch numpy pillow transformers tokenizers safetensors onnx
    /tmp/clip/bin/python test/fixture_scripts/embedders.py

test/compute/nets/clip/fixtures/<name>: config.json and model.safetensors as they are on the Hub; expected.safetensors holds ids, pixels and both embeddings,
computed in float64 from the weights as stored. test/rewards/terms/clip/fixtures: the weights of tiny_clip, whose graphs clip.py exports, and tiny_siglip
with its tokenizer, its preprocessor and its cosines. Run clip.py first: what it makes is read.
"""

import json
import shutil
import string
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    CLIPConfig,
    CLIPModel,
    CLIPVisionConfig,
    CLIPVisionModelWithProjection,
    PreTrainedTokenizerFast,
    SiglipConfig,
    SiglipModel,
    SiglipVisionConfig,
    SiglipVisionModel,
)
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

import clip

REPOSITORY = Path(__file__).resolve().parents[2]
NETS = REPOSITORY / "test" / "compute" / "nets" / "clip" / "fixtures"
TERMS = REPOSITORY / "test" / "rewards" / "terms" / "clip" / "fixtures"
BATCH = 3


def livelier(model):
    """Weights that tell one input from another."""
    for value in model.parameters():
        fan_in = value[0].numel() if value.ndim > 1 else 1
        value.data = torch.randn_like(value) / fan_in**0.5 if value.ndim > 1 else value.data + 0.2 * torch.randn_like(value)
    return model.eval()


def tower(width, heads, **more):
    return dict(hidden_size=width, intermediate_size=width + 8, num_hidden_layers=2, num_attention_heads=heads, **more)


def begun(seed, make):
    torch.manual_seed(seed)
    return livelier(make())


def rewrite(folder, change):
    """Changes a config.json into another that says the same."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    change(config)
    file.write_text(json.dumps(config, indent=1) + "\n")


def stored(model, folder, dtype=torch.float32, extra=None):
    """Saves a model in a number format, and gives it back as it was saved, in float64."""
    shutil.rmtree(folder, ignore_errors=True)
    model.to(dtype).save_pretrained(folder)
    if extra is not None:
        save_file({**load_file(folder / "model.safetensors"), **extra}, folder / "model.safetensors", metadata={"format": "pt"})
    return model.double()


def endings(vocabulary, length, end, filler):
    """Ids of texts that end at different places; the rest is filled up."""
    ids = torch.randint(0, vocabulary - 3, (BATCH, length))
    for row, at in enumerate((2, length - 1, 4)):
        ids[row, at:] = filler
        ids[row, at] = end
    return ids


def expected(folder, model, ids, pixels):
    with torch.no_grad():
        out = {"pixels": pixels}
        if ids is not None:
            out["ids"] = ids
            out["texts"] = model.get_text_features(ids).pooler_output
            out["pictures"] = model.get_image_features(pixels).pooler_output
        else:
            found = model(pixels)
            out["pictures"] = found.image_embeds if hasattr(found, "image_embeds") else found.pooler_output
    save_file({name: value.float().contiguous() for name, value in out.items()}, folder / "expected.safetensors")


def pixels_of(side):
    return torch.randn(BATCH, 3, side, side).double()


def clips():
    # The end's id is the legacy 2: a text ends where its highest id is. The halves differ in all that they can. Places as older files hold them.
    folder = NETS / "clip_legacy"
    config = CLIPConfig(
        projection_dim=6,
        text_config=tower(12, 3, hidden_act="quick_gelu", layer_norm_eps=1e-3, vocab_size=11, max_position_embeddings=7, eos_token_id=2),
        vision_config=tower(16, 2, hidden_act="gelu", layer_norm_eps=1e-2, image_size=11, patch_size=4),
    )
    places = {
        "text_model.embeddings.position_ids": torch.arange(7).reshape(1, 7),
        "vision_model.embeddings.position_ids": torch.arange(5).reshape(1, 5),
    }
    model = stored(begun(1, lambda: CLIPModel(config)), folder, torch.float16, places)
    expected(folder, model, endings(11, 7, 10, 10), pixels_of(11))

    # The first of several ends counts, and ids above it do not. config.json says its text half twice, as files of the first years do.
    folder = NETS / "clip_ends"
    config = CLIPConfig(
        projection_dim=5,
        text_config=tower(12, 2, hidden_act="gelu", vocab_size=12, max_position_embeddings=8, eos_token_id=9),
        vision_config=tower(12, 3, hidden_act="gelu_pytorch_tanh", image_size=8, patch_size=4),
    )
    model = stored(begun(2, lambda: CLIPModel(config)), folder, torch.bfloat16)

    def twice(json_config):
        own = json_config["text_config"]
        json_config["text_config_dict"] = {key: own[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")}
        json_config["text_config_dict"].update({key: own.pop(key) for key in ("hidden_act", "vocab_size", "max_position_embeddings")})
        json_config["text_config_dict"]["eos_token_id"] = 9
        own.update(hidden_act="quick_gelu", eos_token_id=2, hidden_size=999)
        json_config["vision_config_dict"] = None

    rewrite(folder, twice)
    again = CLIPModel.from_pretrained(folder, dtype=torch.float64)
    assert again.config.text_config.hidden_act == "gelu" and again.config.text_config.eos_token_id == 9
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values()))
    ids = endings(12, 8, 9, 11)
    ids[1, 5:] = torch.tensor([9, 11, 9])
    expected(folder, again.eval(), ids, pixels_of(8))

    folder = NETS / "clip_vision"
    config = CLIPVisionConfig(**tower(12, 3, image_size=8, patch_size=4), projection_dim=5)
    expected(folder, stored(begun(3, lambda: CLIPVisionModelWithProjection(config)), folder), None, pixels_of(8))


def siglips():
    # As in so400m, the picture's last pixels belong to no whole square, and the feed-forward layers are of an odd width.
    folder = NETS / "siglip"
    config = SiglipConfig(
        text_config=tower(12, 3, vocab_size=13, max_position_embeddings=6, projection_size=16),
        vision_config=tower(16, 4, image_size=13, patch_size=4, layer_norm_eps=1e-3),
    )
    model = stored(begun(4, lambda: SiglipModel(config)), folder)
    expected(folder, model, torch.randint(0, 13, (BATCH, 6)), pixels_of(13))

    folder = NETS / "siglip_vision"
    config = SiglipVisionConfig(**tower(12, 2, image_size=9, patch_size=4, hidden_act="quick_gelu"))
    expected(folder, stored(begun(5, lambda: SiglipVisionModel(config)), folder, torch.bfloat16), None, pixels_of(9))


def siglip_tokenizer():
    """Pieces of lower-case words without punctuation, with an end behind them, in the form of the fast tokenizers of SigLIP's mirrors."""
    words = sorted(set(clip.TEXT.translate(str.maketrans("", "", string.punctuation)).split()))
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)] + [str(d) for d in range(10)]
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("\u2581", -3.0)]
    pieces += [(f"\u2581{word}", -4.0 - i / 100) for i, word in enumerate(words)] + [(letter, -8.0 - i / 100) for i, letter in enumerate(letters)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    punctuation = "[" + "".join(f"\\{c}" for c in string.punctuation) + "]"
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace(Regex(punctuation), ""), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=12,
        pad_token="</s>",
        eos_token="</s>",
        unk_token="<unk>",
        padding_side="right",
        model_input_names=["input_ids"],
    )


def cosines(name, processor, text_ids, model):
    sizes = [(64, 48, "bands"), (31, 57, "noise"), (7, 5, "bands"), (32, 32, "noise")]
    images = torch.tensor(np.stack([processor(Image.fromarray(clip.picture(*size)))["pixel_values"][0] for size in sizes]))
    with torch.no_grad():
        out = model(input_ids=torch.tensor(text_ids), pixel_values=images)
    found = (out.image_embeds @ out.text_embeds.T).double()
    print(name, "cosines from", found.min().item(), "to", found.max().item())
    pictures = [{"width": w, "height": h, "kind": k} for w, h, k in sizes]
    features = out.vision_model_output.pooler_output.double().tolist()
    (TERMS / name).write_text(json.dumps({"images": pictures, "cosines": found.tolist(), "features": features}) + "\n")


def terms():
    # The weights that clip.py exported as graphs: the same seed, and the same cosines.
    words = clip.tokenizer()
    model = clip.tiny_model(words)
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, clip.MODEL / "model.safetensors", metadata={"format": "pt"})

    folder = TERMS / "tiny_siglip"
    words = siglip_tokenizer()
    config = SiglipConfig(
        text_config=tower(12, 3, vocab_size=len(words), max_position_embeddings=14, projection_size=8),
        vision_config=tower(8, 2, image_size=20, patch_size=8),
    )
    model = begun(6, lambda: SiglipModel(config))
    stored(model, folder)
    model.float()
    words.save_pretrained(folder)
    processor = SiglipImageProcessorPil(size={"height": 20, "width": 20}, resample=2)
    processor.save_pretrained(folder)
    prompts = clip.PROMPTS
    ids = [words(prompt, padding="max_length", truncation=True)["input_ids"] for prompt in prompts]
    (TERMS / "siglip_tokens.json").write_text(json.dumps([{"prompt": p, "ids": i} for p, i in zip(prompts, ids)], indent=1) + "\n")
    cosines("siglip_cosines.json", processor, ids, model)
    pixels()


def pixels():
    """Pictures as SigLIP's processors make them, by both filters that its checkpoints name."""
    cases = []
    for width, height, kind in [(64, 48, "noise"), (48, 64, "noise"), (320, 40, "bands"), (7, 5, "noise"), (40, 130, "noise"), (20, 20, "noise")]:
        for resample in (2, 3):
            settings = {"image_processor_type": "SiglipImageProcessor", "size": {"height": 20, "width": 20}, "resample": resample}
            made = SiglipImageProcessorPil(size=settings["size"], resample=resample)(Image.fromarray(clip.picture(width, height, kind)))
            values = made["pixel_values"][0]
            assert values.dtype == np.float32
            cases.append({"width": width, "height": height, "kind": kind, "settings": settings, "values_sha256": clip.sha256(values)})
    (TERMS / "siglip_pixels.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    clips()
    siglips()
    terms()
