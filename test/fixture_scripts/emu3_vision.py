"""Makes the fixtures of Emu3's vision tokenizer computed from its own folder: small ones of random weights, and transformers' codes and pictures.

    python -m venv /tmp/emu3 && /tmp/emu3/bin/pip install torch numpy "pillow<13" transformers safetensors
    /tmp/emu3/bin/python test/fixture_scripts/emu3_vision.py

test/compute/nets/emu3_vision/fixtures/<name>: config.json, model.safetensors and preprocessor_config.json as they are on the Hub; `published` has BAAI's names
and shapes, `transformers` those of Emu3VQVAE. processed.json holds sizes of pictures with what transformers' processor makes of them, whose rules are
BAAI's but for the pictures that are refused. expected.safetensors holds pixels with the vectors and codes that become of them, and codes with their
pictures, computed in float64 from the weights as stored.
"""

import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import Emu3ImageProcessor, Emu3VQVAE, Emu3VQVAEConfig

FIXTURES = Path(__file__).resolve().parents[2] / "test" / "compute" / "nets" / "emu3_vision" / "fixtures"

# transformers' names of settings and of weights to BAAI's.
SETTINGS = {"base_channels": "ch", "channel_multiplier": "ch_mult", "latent_channels": "z_channels", "double_latent": "double_z"}
SAME = ("codebook_size", "embed_dim", "in_channels", "out_channels", "temporal_downsample_factor", "num_res_blocks", "attn_resolutions")
NAMES = (
    (r"^encoder\.down_block\.", "encoder."),
    (r"^decoder\.up_block\.", "decoder."),
    (r"\.middle_block\.attn_norm\.", ".mid.attn_1.norm."),
    (r"\.middle_block\.", ".mid."),
    (r"\.attn_norms\.(\d+)\.", r".attn.\1.norm."),
    (r"\.([qkv])_proj\.", r".\1."),
    (r"\.out_proj\.", ".proj_out."),
)


def livelier(model):
    """Weights, counts and codes that tell one input from another."""
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith("running_var"):
            value.data.uniform_(0.5, 2)
        elif name.endswith("num_batches_tracked"):
            continue
        elif value.ndim > 1:
            value.data = 1.5 * torch.randn_like(value) / value[0].numel() ** 0.5
        else:
            value.data = value.data + 0.2 * torch.randn_like(value)
    return model.eval()


def vectors_of(model, pixels):
    """What the encoder makes of each picture's places: [B, h, w, E]."""
    frames = pixels.unsqueeze(1).repeat(1, model.config.temporal_downsample_factor, 1, 1, 1)
    latents = model.quant_conv(model.encoder(frames).permute(0, 2, 1, 3, 4))
    return latents[:, :, 0].permute(0, 2, 3, 1)


def made(folder, seed, settings, publish):
    torch.manual_seed(seed)
    shutil.rmtree(folder, ignore_errors=True)
    model = livelier(Emu3VQVAE(Emu3VQVAEConfig(**settings)))
    patch = model.spatial_scale_factor
    pixels = torch.randn(2, 3, 5 * patch, 3 * patch)
    with torch.no_grad():
        found = vectors_of(model, pixels).flatten(0, 2)
        codebook = model.quantize.embedding.weight
        codebook.data = found.mean(0) + found.std(0) * torch.randn_like(codebook)
    model.to(torch.float16).save_pretrained(folder)
    if publish:
        as_published(folder)
    model.double()
    pixels = pixels.double()
    codes = torch.randint(model.config.codebook_size, (2, 3, 4))
    with torch.no_grad():
        vectors = vectors_of(model, pixels)
        nearest = torch.stack(model.encode(pixels, torch.tensor([[5 * patch, 3 * patch]] * 2)).image_tokens)
        distances = torch.cdist(vectors.flatten(0, 2), model.quantize.embedding.weight).square().sort(dim=1).values
        assert (distances[:, 1] / distances[:, 0]).min() > 1 + 1e-4, "a code is nearest by less than rounding"
        assert len(nearest.unique()) > 4
        pictures = model.decode(codes)
    out = {"pixels": pixels, "vectors": vectors, "pictures": pictures, "nearest": nearest, "codes": codes}
    save_file({name: value.float().contiguous() for name, value in out.items()}, folder / "expected.safetensors")


def as_published(folder):
    """The names and shapes of BAAI's folder."""
    config = json.loads((folder / "config.json").read_text())
    own = {key: config[key] for key in SAME} | {new: config[old] for old, new in SETTINGS.items()}
    more = {
        "architectures": ["Emu3VisionVQModel"],
        "auto_map": {
            "AutoConfig": "configuration_emu3visionvq.Emu3VisionVQConfig",
            "AutoModel": "modeling_emu3visionvq.Emu3VisionVQModel",
        },
        "dropout": 0.0,
        "model_type": "Emu3VisionVQ",
        "torch_dtype": "float32",
        "transformers_version": "4.44.0",
    }
    (folder / "config.json").write_text(json.dumps(own | more, indent=2) + "\n")
    renamed = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        for pattern, new in NAMES:
            name = re.sub(pattern, new, name)
        # A matrix product is a 1x1 convolution.
        is_matrix = re.search(r"\.attn(?:_1|\.\d+)\.(?:[qkv]|proj_out)\.weight$", name)
        renamed[name] = tensor[:, :, None, None].contiguous() if is_matrix else tensor
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})


def processed(folder, settings, sizes):
    """Pictures of these widths and heights, whose bytes count up by 7919, as the network takes them, and as they come back from it."""
    processor = Emu3ImageProcessor(**settings)
    out = []
    for width, height in sizes:
        picture = (np.arange(3 * width * height) * 7919 % 256).astype(np.uint8).reshape(height, width, 3)
        values = processor(picture, return_tensors="np")["pixel_values"][0]
        # Numbers between and beyond those of levels.
        moved = (values * np.float32(1.1) + np.float32(0.01)).astype(np.float32)
        (image,) = processor.postprocess([moved], return_tensors="PIL.Image.Image")["pixel_values"]
        digests = {"values": values.astype("<f4").tobytes(), "returned": np.asarray(image).tobytes()}
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in digests.items()}
        fitted = {"width": values.shape[2], "height": values.shape[1]}
        out.append({"width": width, "height": height, "fitted": fitted, **digests})
    (folder / "processed.json").write_text(json.dumps(out, indent=1) + "\n")
    return processor


def main():
    small = dict(base_channels=32, hidden_size=32)
    folder = FIXTURES / "published"
    made(folder, 1, dict(**small, codebook_size=23, channel_multiplier=[2, 1], num_res_blocks=1, attn_resolutions=[1]), True)
    # Sides that are no multiples of 8, half of one over, small and large pictures, and those that may just be so long.
    sizes = [(37, 29), (100, 33), (13, 40), (8, 40), (64, 64), (44, 36), (301, 97), (128, 130), (12, 9)]
    settings = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3, min_pixels=1024, max_pixels=4096)
    processor = json.loads(processed(folder, settings, sizes).to_json_string())
    code = "BAAI/Emu3-VisionTokenizer--image_processing_emu3visionvq.Emu3VisionVQImageProcessor"
    processor |= {"auto_map": {"AutoImageProcessor": code}, "image_processor_type": "Emu3VisionVQImageProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor, indent=2) + "\n")

    folder = FIXTURES / "transformers"
    latents = dict(embed_dim=5, latent_channels=5, temporal_downsample_factor=2)
    more = dict(codebook_size=11, channel_multiplier=[1, 1], num_res_blocks=2, attn_resolutions=[0, 1], num_attention_heads=2)
    made(folder, 2, dict(**small, **latents, **more), False)
    settings = dict(image_std=[0.5, 0.25, 1.0], min_pixels=256, max_pixels=2048, spatial_factor=4)
    processed(folder, settings, [(37, 29), (3, 150), (1, 200), (90, 2), (46, 45)]).save_pretrained(folder)


main()
