"""An iteration of flow-GRPO in a plain loop over diffusers' transformer: one for every line of the input.

    python flow_iteration.py SIZES THREADS

Samples every image with noise in its first steps, then learns from these steps by the clipped ratio, and takes one step of AdamW.
Prints a JSON line for each: wall and processor seconds, and the peak of the resident memory in MiB.
"""

import json
import math
import resource
import sys
import time

import torch
from diffusers import FluxTransformer2DModel

size = json.loads(sys.argv[1])
torch.set_num_threads(int(sys.argv[2]))
torch.manual_seed(0)
model = FluxTransformer2DModel(
    patch_size=1,
    in_channels=2 * size["channels"],
    out_channels=size["channels"],
    num_layers=size["layers"],
    num_single_layers=0,
    attention_head_dim=size["depth"],
    num_attention_heads=size["heads"],
    joint_attention_dim=size["textWidth"],
    pooled_projection_dim=size["pooled"],
    guidance_embeds=False,
    axes_dims_rope=(8, 8, 8),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, foreach=True)
images, tokens = size["prompts"] * size["answers"], size["rows"] ** 2
each = size["answers"]
text = torch.randn(size["prompts"], size["textTokens"], size["textWidth"]).repeat_interleave(each, 0)
pooled = torch.randn(size["prompts"], size["pooled"]).repeat_interleave(each, 0)
source = torch.randn(size["prompts"], tokens, size["channels"]).repeat_interleave(each, 0)
image_ids = torch.tensor([[0, i // size["rows"], i % size["rows"]] for i in range(tokens)], dtype=torch.float32)
text_ids = torch.zeros(size["textTokens"], 3)
sigmas = torch.linspace(1, 0, size["steps"] + 1).tolist()
NOISE = 0.7


def velocity(x, sigma, at):
    return model(
        hidden_states=torch.cat([x, source[at]], -1),
        timestep=torch.full((len(x),), sigma),
        encoder_hidden_states=text[at],
        pooled_projections=pooled[at],
        img_ids=image_ids,
        txt_ids=text_ids,
        return_dict=False,
    )[0]


def noisy(x, v, i):
    """The mean and the deviation of a noisy step."""
    sigma, dt = sigmas[i], sigmas[i + 1] - sigmas[i]
    variance = NOISE**2 * sigma / (1 - (sigmas[1] if sigma == 1 else sigma))
    mean = x * (1 + variance * dt / (2 * sigma)) + v * (1 + variance * (1 - sigma) / (2 * sigma)) * dt
    return mean, math.sqrt(variance * -dt)


def density(drawn, mean, deviation):
    return -((drawn - mean) ** 2).mean((1, 2)) / (2 * deviation**2) - math.log(deviation)


def iteration():
    rows = []
    with torch.no_grad():
        for start in range(0, images, size["batch"]):
            at = slice(start, start + size["batch"])
            x = torch.randn(size["batch"], tokens, size["channels"])
            for i in range(size["steps"]):
                v = velocity(x, sigmas[i], at)
                if i < size["noisy"]:
                    mean, deviation = noisy(x, v, i)
                    drawn = mean + deviation * torch.randn_like(x)
                    rows.append((x, drawn, i, at, density(drawn, mean, deviation)))
                    x = drawn
                else:
                    x = x + v * (sigmas[i + 1] - sigmas[i])
    advantages = torch.tensor([1.0, -1.0]).repeat(images // 2)
    for x, drawn, i, at, old in rows:
        ratio = (density(drawn, *noisy(x, velocity(x, sigmas[i], at), i)) - old).exp()
        a = advantages[at]
        loss = torch.maximum(-a * ratio, -a * ratio.clamp(1 - 1e-4, 1 + 1e-4)).sum() / (images * size["noisy"])
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimizer.step()
    optimizer.zero_grad()


for _ in sys.stdin:
    wall, cpu = time.perf_counter(), time.process_time()
    iteration()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": wall, "cpu_seconds": cpu, "peak_mib": peak}), flush=True)
