"""What transformers and peft compute with a small decoder of random weights, for test/train/policies/agreement.slow.test.ts.

    agreement.py make NAME FOLDER     writes a model, an adapter that peft made over it, and what both compute
    agreement.py load FOLDER ADAPTER MERGED
                                      writes what they compute with an adapter and a merged model that editrl exported

NAME is a model of decoders.py. Prompts have different lengths, and one answer of each is a single token.
"""

import json
import sys
from pathlib import Path

import peft
import torch
import transformers
from decoders import MODELS, SIZES, build
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

LENGTHS, ANSWERS, CONTINUED, NEW = (11, 5), (6, 1), 256, 8


def loaded(folder: Path) -> torch.nn.Module:
    """As the class that reads images where the model has one, whose layers peft names."""
    sees = "vision_config" in json.loads((folder / "config.json").read_text())
    kind = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    return kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def cases() -> list[dict]:
    torch.manual_seed(3)
    ids = lambda count: torch.randint(3, SIZES["vocab_size"] - 8, (count,)).tolist()
    return [dict(prompt=ids(length), answers=[ids(count) for count in ANSWERS]) for length in LENGTHS]


def starts() -> torch.Tensor:
    torch.manual_seed(4)
    return torch.randint(3, SIZES["vocab_size"] - 8, (CONTINUED, 6))


def computed(model: torch.nn.Module, path: Path) -> None:
    """Log-probabilities of the answers, the logits that they come from, and the gradients of minus their sum."""
    model.zero_grad()
    logits, picked = [], []
    for case in cases():
        for answer in case["answers"]:
            ids = torch.tensor([case["prompt"] + answer])
            rows = model(ids).logits[0, -len(answer) - 1 : -1]
            logits.append(rows)
            picked.append(rows.log_softmax(-1)[torch.arange(len(answer)), torch.tensor(answer)])
    all_picked = torch.cat(picked)
    (-all_picked.sum()).backward()
    tensors = dict(logits=torch.cat(logits), log_probs=all_picked)
    for name, value in model.named_parameters():
        if value.grad is not None:
            tensors["gradient:" + name.removeprefix("base_model.model.").replace(".default.", ".")] = value.grad
    save_file({name: value.detach().clone().contiguous() for name, value in tensors.items()}, path)


def greedy(model: torch.nn.Module) -> list[list[int]]:
    ids = starts()
    out = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NEW,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return out[:, ids.shape[1] :].tolist()


def make(name: str, folder: Path) -> None:
    kind, settings, _, _ = MODELS[name]
    torch.manual_seed(17)
    model = build(kind, settings).eval()
    for key, value in model.named_parameters():
        if "norm" in key or "bias" in key:
            value.data.add_(0.2 * torch.randn_like(value))
    model.save_pretrained(folder / "model")
    (folder / "model" / "generation_config.json").unlink(missing_ok=True)
    model = loaded(folder / "model")
    computed(model, folder / "whole.safetensors")
    continued = greedy(model)
    # editrl reads only the text model of those with an encoder here.
    targets = r".*language_model.*_proj" if hasattr(model.config, "vision_config") else "all-linear"
    adapted = get_peft_model(model, LoraConfig(r=3, lora_alpha=6, target_modules=targets, task_type="CAUSAL_LM"))
    for key, value in adapted.named_parameters():
        if "lora_B" in key:
            value.data.normal_(0, 0.1)
    adapted.eval().save_pretrained(folder / "adapter")
    computed(adapted, folder / "adapted.safetensors")
    versions = dict(transformers=transformers.__version__, peft=peft.__version__, torch=torch.__version__.split("+")[0])
    found = dict(versions=versions, cases=cases(), starts=starts().tolist(), continued=continued, adapted=greedy(adapted))
    (folder / "expected.json").write_text(json.dumps(found))


def load(folder: Path, adapter: Path, merged: Path) -> None:
    adapted = PeftModel.from_pretrained(loaded(folder / "model"), adapter).eval()
    whole = loaded(merged)
    logits = lambda model: [
        model(torch.tensor([case["prompt"] + answer])).logits[0, -len(answer) - 1 : -1]
        for case in cases()
        for answer in case["answers"]
    ]
    with torch.no_grad():
        save_file(
            dict(adapter=torch.cat(logits(adapted)), merged=torch.cat(logits(whole))), folder / "loaded.safetensors"
        )
        (folder / "loaded.json").write_text(json.dumps(dict(adapter=greedy(adapted), merged=greedy(whole))))


if sys.argv[1] == "make":
    make(sys.argv[2], Path(sys.argv[3]))
else:
    load(*map(Path, sys.argv[2:]))
