"""Makes the fixtures of test/compute/nets/autoencoder: small autoencoders of random weights as diffusers saves them, and what it computes with them.

    python -m venv /tmp/diffusers && /tmp/diffusers/bin/pip install torch diffusers safetensors
    /tmp/diffusers/bin/python test/fixture_scripts/autoencoder.py

Every model is a folder with config.json, its weights, and expected.safetensors: pictures, the moments of their latents, latents, what
these decode to, and the gradients of all weights for the sums of moments and pictures times random numbers. Gradients are computed in
float64. Of the autoencoders of Qwen-Image and FLUX.2, which are not trained, there are no gradients.
"""

import shutil
import sys
from pathlib import Path

import torch
from diffusers import AutoencoderKL, AutoencoderKLFlux2, AutoencoderKLQwenImage, Flux2KleinPipeline
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parents[2] / "test" / "compute" / "nets" / "autoencoder" / "fixtures"


def sizes(levels: int, **more) -> dict:
    return dict(
        down_block_types=("DownEncoderBlock2D",) * levels,
        up_block_types=("UpDecoderBlock2D",) * levels,
        norm_num_groups=2,
        **more,
    )


MODELS = {
    "two_levels": sizes(2, block_out_channels=(4, 8), latent_channels=3),
    "no_attention": sizes(
        3,
        block_out_channels=(4, 4, 6),
        layers_per_block=2,
        latent_channels=2,
        shift_factor=0.1,
        use_quant_conv=False,
        use_post_quant_conv=False,
        mid_block_add_attention=False,
    ),
}
BATCH, ROWS, COLUMNS = 2, 8, 12


def main() -> None:
    for seed, (name, settings) in enumerate(MODELS.items()):
        torch.manual_seed(seed)
        model = AutoencoderKL(**settings)
        for value in model.parameters():
            fan_in = value[0].numel() if value.ndim > 1 else 1
            value.data = torch.randn_like(value) / fan_in**0.5 if value.ndim > 1 else value.data + 0.2 * torch.randn_like(value)
        folder = ROOT / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        side = 2 ** (len(settings["block_out_channels"]) - 1)
        pictures = torch.rand(BATCH, 3, ROWS, COLUMNS) * 2 - 1
        latents = torch.randn(BATCH, settings["latent_channels"], ROWS // side, COLUMNS // side)
        model.double()
        moments = model.encode(pictures.double()).latent_dist.parameters
        decoded = model.decode(latents.double()).sample
        of_moments, of_decoded = torch.randn_like(moments).float(), torch.randn_like(decoded).float()
        ((moments * of_moments).sum() + (decoded * of_decoded).sum()).backward()
        save_file(
            {
                "pictures": pictures,
                "latents": latents,
                "moments": moments.detach().float().contiguous(),
                "decoded": decoded.detach().float().contiguous(),
                "of_moments": of_moments.contiguous(),
                "of_decoded": of_decoded.contiguous(),
                **{f"gradient:{key}": value.grad.float().contiguous() for key, value in model.named_parameters()},
            },
            folder / "expected.safetensors",
        )
    qwen_image()
    flux2()


def flux2() -> None:
    torch.manual_seed(8)
    model = AutoencoderKLFlux2(
        **sizes(2, block_out_channels=(4, 6), decoder_block_out_channels=(2, 6), latent_channels=3, layers_per_block=1, batch_norm_eps=0.01)
    )
    for value in model.parameters():
        fan_in = value[0].numel()
        value.data = torch.randn_like(value) / fan_in**0.5 if fan_in > 1 else value.data + 0.2 * torch.randn_like(value)
    model.bn.running_mean.normal_()
    model.bn.running_var.uniform_(0.1, 2)
    folder = ROOT / "flux2"
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    pictures = torch.rand(BATCH, 3, ROWS, COLUMNS) * 2 - 1
    latents = torch.randn(BATCH, 12, ROWS // 4, COLUMNS // 4)
    # The pipeline without its other parts encodes pictures and decodes latents.
    pipeline = Flux2KleinPipeline(scheduler=None, vae=model, text_encoder=None, tokenizer=None, transformer=None)
    model.double()
    with torch.no_grad():
        encoded = pipeline._encode_vae_image(pictures.double(), None)
        deviations = torch.sqrt(model.bn.running_var + model.config.batch_norm_eps).view(1, -1, 1, 1)
        raw = pipeline._unpatchify_latents(latents.double() * deviations + model.bn.running_mean.view(1, -1, 1, 1))
        decoded = model.decode(raw).sample
    tensors = {"pictures": pictures, "latents": latents, "encoded": encoded.float(), "decoded": decoded.float()}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "expected.safetensors")


def qwen_image() -> None:
    torch.manual_seed(7)
    model = AutoencoderKLQwenImage(
        base_dim=4,
        z_dim=3,
        dim_mult=[1, 2, 2],
        num_res_blocks=1,
        temperal_downsample=[False, True],
        latents_mean=[-0.5, 0.25, 1.0],
        latents_std=[2.0, 0.5, 1.5],
    )
    for value in model.parameters():
        fan_in = value[0].numel()
        value.data = torch.randn_like(value) / fan_in**0.5 if fan_in > 1 else value.data + 0.2 * torch.randn_like(value)
    folder = ROOT / "qwen_image"
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    pictures = torch.rand(BATCH, 3, ROWS, COLUMNS) * 2 - 1
    latents = torch.randn(BATCH, 3, ROWS // 4, COLUMNS // 4)
    with torch.no_grad():
        means = model.encode(pictures[:, :, None]).latent_dist.mean[:, :, 0]
        decoded = model.decode(latents[:, :, None]).sample[:, :, 0]
    tensors = {"pictures": pictures, "latents": latents, "means": means, "decoded": decoded}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "expected.safetensors")


if sys.argv[1:] == ["flux2"]:
    flux2()
else:
    main()
