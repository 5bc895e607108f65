"""Measures a gradient of SmolLM2, with peft or of all weights, or a step of torch's AdamW; one measurement for every line of the input.

    python peft_gradient.py FOLDER lora|all|lora_shared|all_shared|adamw THREADS

Prints a JSON line for each: wall and processor seconds, and the peak of the resident memory in MiB.
"""

import json
import resource
import sys
import time

import torch

PROMPT, ANSWER, ANSWERS = 43, 64, 16
PARAMETERS = 134_515_008


def opened(folder: str, adapted: bool):
    """The model, with an adapter if only that trains, and the model below it."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    core = model
    if adapted:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
        core = model.base_model.model
    return model, core


def gradient(folder: str, adapted: bool):
    """The gradient of a policy loss over 16 answers of 64 tokens to prompts of 43, with only the answers' logits."""
    model, core = opened(folder, adapted)
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


def shared_gradient(folder: str, adapted: bool):
    """The same over answers of 4 to 24 tokens, 8 to each of 2 prompts of 90, whose keys and values are computed once and read by all 8."""
    from transformers import DynamicCache

    model, core = opened(folder, adapted)
    generator = torch.Generator().manual_seed(0)
    prompts, each, length = 2, 8, 90
    ids = torch.randint(100, 40_000, (prompts, length), generator=generator)
    lengths = torch.tensor([4 + 8 * i % 21 for i in range(prompts * each)])
    longest = int(lengths.max())
    answers = torch.randint(100, 40_000, (prompts * each, longest), generator=generator)
    advantages = torch.randn(prompts * each, 1, generator=generator)
    weights = (torch.arange(longest)[None] < lengths[:, None]).float()
    # The prompt's last token begins an answer's row, and the answer's last token is not read.
    inputs = torch.cat([ids[:, -1:].repeat_interleave(each, 0), answers[:, :-1]], 1)
    mask = torch.cat([torch.ones(prompts * each, length - 1), weights], 1).long()

    def step() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        prompt = core.model(ids[:, :-1], use_cache=True).past_key_values
        layers = [(layer.keys.repeat_interleave(each, 0), layer.values.repeat_interleave(each, 0)) for layer in prompt.layers]
        cache = DynamicCache()
        for i, (keys, values) in enumerate(layers):
            cache.update(keys, values, i)
        positions = torch.arange(length - 1, length - 1 + longest)[None]
        hidden = core.model(
            inputs, attention_mask=mask, past_key_values=cache, position_ids=positions.expand(prompts * each, -1)
        ).last_hidden_state
        log_probs = torch.log_softmax(core.lm_head(hidden), -1).gather(-1, answers[..., None])[..., 0]
        (-(log_probs * advantages * weights).sum() / weights.sum()).backward()

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
    name, _, shared = kind.partition("_")
    step = adamw() if name == "adamw" else (shared_gradient if shared else gradient)(folder, name == "lora")
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": wall, "cpu_seconds": cpu, "peak_mib": peak}), flush=True)


main()
