"""Makes expected_kontext.safetensors beside the small FLUX of test/train/policies/flow/fixtures: the edit by diffusers' FluxKontextPipeline of the same parts.

    python -m venv /tmp/diffusers && /tmp/diffusers/bin/pip install torch diffusers transformers pillow safetensors
    /tmp/diffusers/bin/python test/fixture_scripts/kontext_pipeline.py

The source image keeps its size, as in editrl: the pipeline's own resizing is off. The file holds the image as bytes, its latents, the
text of the instruction, the noise, the edited latents after four steps and the edited image. For one velocity at noise level 0.75 it
also holds the output and the gradients of all weights for the sum of the output times `projection`, computed in float64.
"""

from pathlib import Path

import diffusers
import numpy as np
import torch
from diffusers import FluxKontextPipeline, FluxPipeline
from PIL import Image
from safetensors.torch import save_file

FLUX = Path(__file__).resolve().parents[2] / "test" / "train" / "policies" / "flow" / "fixtures" / "flux"
PROMPT = "A red  door, and BAT's naïve 2 signs"
WIDTH, HEIGHT = 12, 16
STEPS, GUIDANCE, LEVEL = 4, 2.5, 0.75


def main() -> None:
    torch.manual_seed(3)
    parts = FluxPipeline.from_pretrained(FLUX).components
    pipeline = FluxKontextPipeline(**{name: part for name, part in parts.items()})
    pipeline.set_progress_bar_config(disable=True)
    transformer = pipeline.transformer
    image = Image.fromarray(np.random.default_rng(3).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8))
    tokens = (HEIGHT // 4) * (WIDTH // 4)
    noise = torch.randn(1, tokens, 16)
    tensors = {"image": torch.from_numpy(np.array(image)).float(), "noise": noise[0]}
    seen = {}

    def watched(module, args, kwargs):
        # Four solver steps call the transformer four times; the inputs other than the noisy latents are the same.
        seen.update(kwargs)

    handle = transformer.register_forward_pre_hook(watched, with_kwargs=True)
    options = dict(num_inference_steps=STEPS, guidance_scale=GUIDANCE, height=HEIGHT, width=WIDTH, max_area=WIDTH * HEIGHT, _auto_resize=False)
    for kind, name in (("latent", "latents"), ("pt", "edited")):
        with torch.no_grad():
            tensors[name] = pipeline(image, PROMPT, latents=noise.clone(), output_type=kind, **options).images[0]
    handle.remove()
    tensors["source"] = seen["hidden_states"][0, tokens:]
    tensors["text"], tensors["pooled"] = seen["encoder_hidden_states"][0], seen["pooled_projections"][0]
    tensors["sigmas"] = pipeline.scheduler.sigmas
    tensors["projection"] = torch.randn(tokens, 16)

    transformer.double()
    floats = {key: value.double() for key, value in seen.items() if torch.is_tensor(value) and value.is_floating_point()}
    hidden = torch.cat((noise.double(), tensors["source"][None].double()), 1)
    output = transformer(**{**seen, **floats, "hidden_states": hidden, "timestep": torch.tensor([LEVEL]).double()})[0][:, :tokens]
    (output[0] * tensors["projection"].double()).sum().backward()
    tensors["velocity"] = output[0].detach().float()
    gradients = {f"gradient:{key}": value.grad.float() for key, value in transformer.named_parameters() if value.grad is not None}
    found = {key: value.detach().contiguous().clone() for key, value in {**tensors, **gradients}.items()}
    save_file(found, FLUX / "expected_kontext.safetensors", metadata={"diffusers": diffusers.__version__, "torch": torch.__version__})
    for name, value in tensors.items():
        print(name, list(value.shape), float(value.abs().max()))
    # How far torch's own float32 is from these numbers.
    double = {key: value.grad.clone() for key, value in transformer.named_parameters() if value.grad is not None}
    transformer.float().zero_grad()
    single = transformer(**{**seen, "hidden_states": hidden.float(), "timestep": torch.tensor([LEVEL])})[0][0, :tokens]
    (single * tensors["projection"]).sum().backward()
    print(len(gradients), "gradients; float32 is from float64", float((single - output[0]).abs().max() / output.abs().max()))
    grads = dict(transformer.named_parameters())
    far = [(float((grads[key].grad - value).abs().max() / value.abs().max().clamp(min=0.1)), key) for key, value in double.items()]
    print("gradients:", sorted(far, reverse=True)[:3])


main()
