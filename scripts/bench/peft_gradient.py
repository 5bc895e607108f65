"""Measures a gradient of SmolLM2, with peft or of all weights, or a step of torch's AdamW; one measurement for every line of the input.

    python peft_gradient.py FOLDER lora|all|adamw THREADS

Prints a JSON line for each: wall and processor seconds, and the peak of the resident memory in MiB.
"""

import json
import resource
import sys
import time

import torch

PROMPT, ANSWER, ANSWERS = 43, 64, 16
PARAMETERS = 134_515_008


def gradient(folder: str, adapted: bool):
    """The gradient of a policy loss over 16 answers of 64 tokens to prompts of 43, with only the answers' logits."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    core = model
    if adapted:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
        core = model.base_model.model
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(100, 40_000, (ANSWERS, PROMPT + ANSWER), generator=generator)
    advantages = torch.randn(ANSWERS, 1, generator=generator)

    def step() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        hidden = core.model(ids).last_hidden_state[:, PROMPT - 1 : -1]
        log_probs = torch.log_softmax(core.lm_head(hidden), -1).gather(-1, ids[:, PROMPT:, None])[..., 0]
        (-(log_probs * advantages).sum() / log_probs.numel()).backward()

    return step


def adamw():
    """Clipping and AdamW over the number of parameters of SmolLM2, in tensors of 1.2 million."""
    size = 1_228_800
    parameters = [torch.nn.Parameter(torch.randn(size)) for _ in range(round(PARAMETERS / size))]
    for parameter in parameters:
        parameter.grad = torch.randn(size)
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.0, foreach=True)

    def step() -> None:
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()

    return step


def main() -> None:
    folder, kind, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    step = adamw() if kind == "adamw" else gradient(folder, kind == "lora")
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": wall, "cpu_seconds": cpu, "peak_mib": peak}), flush=True)


main()
