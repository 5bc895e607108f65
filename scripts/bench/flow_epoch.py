"""An epoch of flow-GRPO with diffusers' FLUX transformer, without rewards: pictures from SDE steps, then a policy step on the noisy pictures.

    python flow_epoch.py '{"folder": TRANSFORMER, "rows": 4, "columns": 8, "text_tokens": 3, ...}'

Prints a JSON line for each epoch: seconds of sampling and of learning. The transformer has the sizes of the folder's config.json and random
weights. Unlike editrl's run it has no IP-Adapter, no masks and no decoding, so there is less work here.
"""

import json
import sys
import time
from pathlib import Path

import torch
from diffusers import FluxTransformer2DModel

asked = json.loads(sys.argv[1])
torch.set_num_threads(asked["threads"])
torch.manual_seed(0)
sizes = json.loads((Path(asked["folder"]) / "config.json").read_text())
fields = (
    "in_channels out_channels num_layers num_single_layers attention_head_dim num_attention_heads joint_attention_dim axes_dims_rope"
)
# diffusers requires a pooled text embedding, so it gets the smallest width.
model = FluxTransformer2DModel(
    patch_size=1, pooled_projection_dim=1, guidance_embeds=False, **{name: sizes[name] for name in fields.split()}
)
width, tokens = sizes["out_channels"], asked["rows"] * asked["columns"]
image_ids = torch.zeros(tokens, 3)
image_ids[:, 1] = torch.arange(tokens) // asked["columns"]
image_ids[:, 2] = torch.arange(tokens) % asked["columns"]
text_ids = torch.zeros(asked["text_tokens"], 3)
episodes, batch, steps, window = (asked[name] for name in ("episodes", "batch", "steps", "window"))
words = torch.randn(episodes, asked["text_tokens"], sizes["joint_attention_dim"])
around = torch.randn(episodes, tokens, sizes["in_channels"] - width)
schedule = torch.linspace(1, 0, steps + 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)


def velocity(x, sigma, rows):
    return model(
        hidden_states=torch.cat([x, around[rows]], -1),
        encoder_hidden_states=words[rows],
        pooled_projections=torch.zeros(len(rows), 1),
        timestep=torch.full((len(rows),), float(sigma)),
        img_ids=image_ids,
        txt_ids=text_ids,
    ).sample


def gaussian(x, v, at):
    """Mean and deviation of flow-GRPO's SDE step (Liu et al., 2025)."""
    s, dt = schedule[at], schedule[at + 1] - schedule[at]
    sigma = torch.sqrt(s / (1 - (schedule[1] if s == 1 else s))) * 0.7
    mean = x * (1 + sigma**2 / (2 * s) * dt) + v * (1 + sigma**2 * (1 - s) / (2 * s)) * dt
    return mean, sigma * torch.sqrt(-dt)


def log_prob(drawn, mean, deviation):
    return (-((drawn - mean) ** 2) / (2 * deviation**2) - torch.log(deviation)).mean(dim=(1, 2))


def epoch():
    start = time.perf_counter()
    kept = []
    with torch.no_grad():
        for first in range(0, episodes, batch):
            rows = torch.arange(first, min(first + batch, episodes))
            x = torch.randn(len(rows), tokens, width)
            for at in range(steps):
                v = velocity(x, schedule[at], rows)
                if at < window:
                    mean, deviation = gaussian(x, v, at)
                    drawn = mean + deviation * torch.randn_like(mean)
                    kept.append((rows, at, x, drawn, log_prob(drawn, mean, deviation)))
                    x = drawn
                else:
                    x = x + v * (schedule[at + 1] - schedule[at])
    sampled = time.perf_counter()
    advantages = torch.randn(episodes)
    for rows, at, x, drawn, old in kept:
        mean, deviation = gaussian(x, velocity(x, schedule[at], rows), at)
        ratio = torch.exp(log_prob(drawn, mean, deviation) - old)
        (-(ratio * advantages[rows]).sum() / (episodes * window)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return {"rollout": sampled - start, "update": time.perf_counter() - sampled}


for _ in range(asked["epochs"]):
    print(json.dumps(epoch()), flush=True)
