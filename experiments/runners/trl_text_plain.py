"""configs/text_plain.jsonnet with configs/lib/smollm2.libsonnet, trained by TRL's GRPOTrainer and peft instead of editrl: the same
prompts, reward, model, adapter and numbers of answers. Prints one JSON line for each held-out evaluation, before and after; --minutes
ends training after so much time, so that both may have the same.

    python experiments/runners/trl_text_plain.py data/smollm2 data/tiny/words --seed 1 --iterations 60

Needs torch, transformers, peft, trl and datasets.
"""

import argparse
import json
import re
import time
from pathlib import Path

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback, set_seed
from trl import GRPOConfig, GRPOTrainer

SYSTEM = "Rewrite the sentence in plain words."
EXAMPLES = [
    ("a scarlet wedge beneath an amber plus", "a red triangle below a yellow cross"),
    ("a mauve box east of a teal ring", "a purple square right of a cyan circle"),
]
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def conversation(prompt):
    turns = [{"role": "system", "content": SYSTEM}]
    for question, answer in EXAMPLES:
        turns += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return turns + [{"role": "user", "content": prompt}]


def overlap(answer, expected):
    """|A and B| / |A or B| of the sets of lower-cased words."""
    a, b = set(WORD.findall(answer.lower())), set(WORD.findall(expected.lower()))
    return len(a & b) / len(a | b) if a | b else 0.0


def reward(completions, expected, **_):
    return [overlap(turns[0]["content"], label) for turns, label in zip(completions, expected)]


def rows(path):
    found = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [{"prompt": conversation(row["prompt"]), "expected": row["expected"]} for row in found]


@torch.no_grad()
def evaluate(model, tokenizer, held_out, greedy, tokens):
    scores = []
    for start in range(0, len(held_out), 32):
        part = held_out[start : start + 32]
        texts = [
            tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False) for row in part
        ]
        batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        how = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        made = model.generate(**batch, max_new_tokens=tokens, pad_token_id=tokenizer.pad_token_id, **how)
        answers = tokenizer.batch_decode(made[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
        scores += [overlap(answer, row["expected"]) for answer, row in zip(answers, part)]
    return sum(scores) / len(scores)


class TimeLimit(TrainerCallback):
    """Ends training after the iteration in which this many seconds have passed."""

    def __init__(self, seconds):
        self.seconds = seconds

    def on_train_begin(self, args, state, control, **_):
        self.start = time.time()

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = control.should_training_stop or time.time() - self.start > self.seconds


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("model")
    flags.add_argument("data")
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--iterations", type=int, default=60)
    flags.add_argument("--held-out", type=int, default=256)
    flags.add_argument("--tokens", type=int, default=24)
    flags.add_argument("--minutes", type=float, default=float("inf"))
    given = flags.parse_args()
    set_seed(given.seed)
    tokenizer = AutoTokenizer.from_pretrained(given.model, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32)
    held_out = rows(f"{given.data}/validation.jsonl")[: given.held_out]
    config = GRPOConfig(
        output_dir="/tmp/trl_text_plain",
        seed=given.seed,
        use_cpu=True,
        bf16=False,
        learning_rate=2e-4,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=4,
        num_generations=8,
        max_completion_length=given.tokens,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        beta=0.001,
        max_steps=given.iterations,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        logging_steps=1,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list(rows(f"{given.data}/train.jsonl")),
        processing_class=tokenizer,
        callbacks=[TimeLimit(60 * given.minutes)],
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )

    def report(iteration, seconds):
        trainer.model.eval()
        scores = {
            name: evaluate(trainer.model, tokenizer, held_out, name == "greedy", given.tokens)
            for name in ("sampled", "greedy")
        }
        print(json.dumps({"iteration": iteration, **scores, "seconds": seconds}), flush=True)

    report(0, 0)
    start = time.time()
    trainer.train()
    report(trainer.state.global_step, time.time() - start)


if __name__ == "__main__":
    main()
