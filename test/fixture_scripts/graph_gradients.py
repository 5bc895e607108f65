"""Makes the fixtures of test/compute/graph and test/compute/onnx with PyTorch, an implementation that shares nothing with ours.

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy
    /tmp/torch/bin/python test/fixture_scripts/graph_gradients.py

Inputs are rounded to float32; values and gradients are computed in float64, the optimizer's steps in float32.
"""

import json
import math
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2] / "test"


def tensor(generator, *shape, scale=1.0):
    return (torch.randn(shape, generator=generator) * scale).float().double().requires_grad_()


def dump(x):
    return {"shape": list(x.shape), "data": [round(v, 12) for v in x.detach().flatten().tolist()]}


def composite(inputs, output, generator):
    """Values, and gradients of the output's projection on fixed weights."""
    weights = torch.randn(*output.shape, generator=generator).float().double()
    (output * weights).sum().backward()
    return {
        "inputs": {name: dump(x) for name, x in inputs.items()},
        "weights": dump(weights),
        "output": dump(output),
        "gradients": {name: dump(x.grad) for name, x in inputs.items() if x.requires_grad},
    }


def attention(generator):
    q = tensor(generator, 2, 4, 5, 3)
    k, v = tensor(generator, 2, 2, 5, 3), tensor(generator, 2, 2, 5, 3)
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), is_causal=True
    )
    return composite({"q": q, "k": k, "v": v}, out, generator)


def rms_norm(generator):
    x, weight = tensor(generator, 3, 6), tensor(generator, 6)
    return composite({"x": x, "weight": weight}, torch.nn.functional.rms_norm(x, (6,), weight, eps=1e-5), generator)


def swiglu(generator):
    x = tensor(generator, 4, 3)
    gate, up, down = tensor(generator, 5, 3), tensor(generator, 5, 3), tensor(generator, 3, 5)
    out = torch.nn.functional.linear(
        torch.nn.functional.silu(torch.nn.functional.linear(x, gate)) * torch.nn.functional.linear(x, up), down
    )
    return composite({"x": x, "gate": gate, "up": up, "down": down}, out, generator)


def cross_entropy(generator):
    logits = tensor(generator, 6, 7, scale=3.0)
    targets = torch.randint(0, 7, (6,), generator=generator)
    out = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return composite({"logits": logits, "targets": targets}, out, generator)


def rotary(generator):
    x = tensor(generator, 2, 2, 3, 4)
    positions = torch.tensor([[0, 1, 2], [3, 4, 9]])
    frequencies = 10000.0 ** (-torch.arange(0, 4, 2).double() / 4)
    angles = positions[:, None, :, None].double() * frequencies
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
    low, high = x.chunk(2, -1)
    return composite({"x": x, "positions": positions}, x * cos + torch.cat([-high, low], -1) * sin, generator)


def optimizer(generator, options, max_norm, steps=8):
    """Parameters after every step of AdamW on given gradients, clipped by their joint norm."""
    shapes = {"a": (3, 4), "b": (5,), "c": ()}
    weights = {name: torch.randn(shape, generator=generator).requires_grad_() for name, shape in shapes.items()}
    adam = torch.optim.AdamW(weights.values(), foreach=False, **options)
    start = {name: dump(w) for name, w in weights.items()}
    rows = []
    for step in range(steps):
        rate = options["lr"] * (1 + step) / steps
        adam.param_groups[0]["lr"] = rate
        for w in weights.values():
            w.grad = torch.randn(w.shape, generator=generator) * 10.0 ** (step % 3 - 1)
        gradients = {name: dump(w.grad) for name, w in weights.items()}
        norm = torch.nn.utils.clip_grad_norm_(weights.values(), math.inf if max_norm is None else max_norm)
        adam.step()
        rows.append(
            {
                "learning_rate": rate,
                "gradients": gradients,
                "norm": norm.item(),
                "weights": {name: dump(w) for name, w in weights.items()},
            }
        )
    state = {name: {key: dump(adam.state[w][key]) for key in ("exp_avg", "exp_avg_sq")} for name, w in weights.items()}
    return {"options": options, "max_norm": max_norm, "start": start, "steps": rows, "state": state}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, separators=(",", ":")) + "\n")


def main():
    generator = torch.Generator().manual_seed(20)
    made = {f.__name__: f(generator) for f in (attention, rms_norm, swiglu, cross_entropy, rotary)}
    write(ROOT / "compute/graph/fixtures/composites.json", {"torch": torch.__version__, **made})
    runs = {
        "defaults": optimizer(generator, {"lr": 1e-2, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}, 1.0),
        "decay": optimizer(generator, {"lr": 3e-2, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1}, None),
    }
    write(ROOT / "compute/onnx/fixtures/adamw.json", {"torch": torch.__version__, **runs})


if __name__ == "__main__":
    main()
