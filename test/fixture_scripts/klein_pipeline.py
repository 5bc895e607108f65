"""Makes test/train/policies/flow/fixtures/klein: a small FLUX.2-klein of random weights as diffusers saves it, and what it computes.

    python -m venv /tmp/diffusers && /tmp/diffusers/bin/pip install torch diffusers transformers pillow safetensors
    /tmp/diffusers/bin/python test/fixture_scripts/klein_pipeline.py

Source images keep their size, as in editrl: the pipeline's check of a least side is off. expected.safetensors holds the texts of three
prompts (of the long and the empty one, the states of the last tokens), two images as bytes with their latents, noise, latents after four
steps (no image and two images with guidance, one without), the images of these, and noise levels for several numbers of steps and tokens.
"""

import shutil
from pathlib import Path

import diffusers
import numpy as np
import torch
from diffusers import AutoencoderKLFlux2, FlowMatchEulerDiscreteScheduler, Flux2KleinPipeline, Flux2Transformer2DModel
from diffusers.pipelines.flux2.pipeline_flux2_klein import compute_empirical_mu
from PIL import Image
from qwen_text import letters
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

ROOT = Path(__file__).resolve().parents[2] / "test" / "train" / "policies" / "flow" / "fixtures" / "klein"
PROMPTS = {"short": "A red  door, and BAT's naïve 2 signs", "long": "a red door by the sea " * 40, "empty": ""}
STEPS, GUIDANCE = 4, 4.0
SIZES = ((12, 16), (8, 12))
LEVELS = ((4, 1024), (28, 4096), (50, 4300), (50, 6000))
# Qwen3's for a conversation of text, as far as the pipeline needs it.
TEMPLATE = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""


def livelier(model):
    """Weights that tell one input from another."""
    for parameter in model.parameters():
        fan_in = parameter[0].numel()
        noise = torch.randn_like(parameter)
        parameter.data = noise / fan_in**0.5 if parameter.ndim > 1 else parameter.data + 0.2 * noise
    return model.eval()


def encoder(vocabulary: int) -> Qwen3ForCausalLM:
    sizes = dict(hidden_size=8, intermediate_size=12, num_hidden_layers=28, num_attention_heads=2, num_key_value_heads=1, head_dim=4)
    return livelier(Qwen3ForCausalLM(Qwen3Config(vocab_size=vocabulary + 3, bos_token_id=None, eos_token_id=None, **sizes)))


def autoencoder() -> AutoencoderKLFlux2:
    levels = dict(down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, block_out_channels=(4, 4))
    model = livelier(AutoencoderKLFlux2(latent_channels=3, norm_num_groups=2, layers_per_block=1, **levels))
    model.bn.running_mean.normal_()
    model.bn.running_var.uniform_(0.1, 2)
    return model


def transformer() -> Flux2Transformer2DModel:
    return livelier(
        Flux2Transformer2DModel(
            num_layers=1, num_single_layers=1, attention_head_dim=8, num_attention_heads=2, joint_attention_dim=24, in_channels=12,
            axes_dims_rope=(2, 2, 2, 2), guidance_embeds=False,
        )
    )


def main() -> None:
    torch.manual_seed(5)
    shutil.rmtree(ROOT, ignore_errors=True)
    tokenizer = letters(ROOT / "tokenizer")
    tokenizer.chat_template = TEMPLATE
    pipeline = Flux2KleinPipeline(
        transformer=transformer(),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=autoencoder(),
        text_encoder=encoder(len(tokenizer)),
        tokenizer=tokenizer,
        is_distilled=False,
    )
    pipeline.save_pretrained(ROOT)
    # As in the published folder, whose tokenizer has a class of its own.
    index = ROOT / "model_index.json"
    index.write_text(index.read_text().replace("TokenizersBackend", "Qwen2TokenizerFast"))
    pipeline.set_progress_bar_config(disable=True)
    pipeline.image_processor.check_image_input = lambda image: None

    tensors = {}
    for name, prompt in PROMPTS.items():
        with torch.no_grad():
            text = pipeline.encode_prompt(prompt, device="cpu")[0][0]
        tensors[f"text_{name}"] = text if name == "short" else text[-8:]
    random = np.random.default_rng(5)
    images = [Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8)) for width, height in SIZES]
    tensors |= {f"image_{i}": torch.from_numpy(np.array(image)).float() for i, image in enumerate(images)}
    width, height = SIZES[0]
    noise = torch.randn(1, 12, height // 4, width // 4)
    tensors["noise"] = noise[0].flatten(1).T

    seen = {}

    def watched(module, args, kwargs):
        seen.update(kwargs)

    def stepped(pipe, step, time, found):
        seen["latents"] = found["latents"]
        return found

    handle = pipeline.transformer.register_forward_pre_hook(watched, with_kwargs=True)
    options = dict(num_inference_steps=STEPS, height=height, width=width, output_type="pt", callback_on_step_end=stepped)
    for name, shown, guidance in (("none", None, GUIDANCE), ("one", images[:1], 1.0), ("two", images, GUIDANCE)):
        with torch.no_grad():
            tensors[f"edited_{name}"] = pipeline(shown, PROMPTS["short"], latents=noise.clone(), guidance_scale=guidance, **options).images[0]
        tensors[f"latents_{name}"] = seen["latents"][0]
    handle.remove()
    tensors["shown"] = seen["hidden_states"][0, noise[0, 0].numel() :]
    tensors["sigmas"] = pipeline.scheduler.sigmas
    for steps, tokens in LEVELS:
        sigmas = np.linspace(1.0, 1 / steps, steps)
        pipeline.scheduler.set_timesteps(sigmas=sigmas, mu=compute_empirical_mu(tokens, steps))
        tensors[f"sigmas_{steps}_{tokens}"] = pipeline.scheduler.sigmas
    found = {key: value.detach().contiguous().clone() for key, value in tensors.items()}
    save_file(found, ROOT / "expected.safetensors", metadata={"diffusers": diffusers.__version__, "torch": torch.__version__})
    for name, value in tensors.items():
        print(name, list(value.shape), float(value.abs().max()))


main()
