"""Trains a language model or a vision-language model with TRL's GRPOTrainer as a run of editrl.

The settings are `parameters` of trl.jsonnet. Any number of processes may run this script: those of editrl, torchrun or accelerate.
Needs trl, peft and datasets. Verified with TRL 1.16.0.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/clients"))

import torch
from datasets import Image, load_dataset
from editrl_reward import Reward, editrl_run
from peft import LoraConfig
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

# TRL's `reward` counts an answer without a score as 0. Its mean of each reward function leaves these answers out.
METRICS = {
    "rewards/editrl/mean": "reward/mean",
    "rewards/editrl/std": "reward/std",
    "eval_rewards/editrl/mean": "validation/sampled/mean",
    "loss": "policy/loss",
    "kl": "policy/kl",
    "grad_norm": "policy/grad_norm",
    "learning_rate": "policy/learning_rate",
    "entropy": "policy/entropy",
    "completions/mean_length": "episode/length",
    "completions/clipped_ratio": "episode/non_stop_rate",
}
LEFT_OUT = ("reward", "reward_std", "eval_reward", "eval_reward_std")


class Editrl(TrainerCallback):
    """Reports metrics, and saves a checkpoint after a request to stop."""

    def __init__(self, run, reward):
        self.run, self.reward = run, reward
        self.stopped = False

    def on_log(self, args, state, control, logs=None, **_):
        numbers = {name: value for name, value in (logs or {}).items() if isinstance(value, (int, float)) and name not in LEFT_OUT}
        self.run.log(state.global_step, {**{METRICS.get(name, f"trl/{name}"): value for name, value in numbers.items()}, **self.reward.stats()})

    def on_step_end(self, args, state, control, **_):
        stop = torch.tensor(float(self.run.should_stop()), device=args.device)
        if torch.distributed.is_initialized():
            # All ranks leave after the same step.
            torch.distributed.all_reduce(stop)
        if stop.item() > 0:
            self.stopped = state.global_step < state.max_steps
            control.should_save = control.should_training_stop = True


def rows(path, settings, limit=None):
    """A dataset with the column `prompt` in TRL's form, and `image` decoded if there is one."""
    file = Path(path).exists()
    data = load_dataset("json", data_files=str(path), split="train") if file else load_dataset(path, split="train")
    if limit is not None:
        data = data.select(range(min(limit, len(data))))

    def prompt_of(row):
        text = settings["template"].replace("{prompt}", row["prompt"])
        return {"prompt": [{"role": "user", "content": text}] if settings["chat"] else text}

    data = data.map(prompt_of)
    return data.cast_column("image", Image()) if "image" in data.column_names else data


def last_checkpoint(folder):
    """The newest checkpoint that was written to its end, or None. The Trainer writes trainer_state.json last."""

    def is_complete(path):
        try:
            json.loads((path / "trainer_state.json").read_text())
            return True
        except (OSError, ValueError):
            return False

    found = [path for path in Path(folder).glob("checkpoint-*") if is_complete(path)]
    return max(found, key=lambda path: int(path.name.partition("-")[2]), default=None)


def main():
    run = editrl_run()
    parameters = run.parameters
    data, reward = parameters["dataset"], Reward(parameters["reward"]["url"])
    report = Editrl(run, reward)
    start = last_checkpoint(run.checkpoints)
    # The first evaluation belongs to a new run. A resumed run has it.
    grpo = parameters["grpo"] if start is None else {**parameters["grpo"], "eval_on_start": False}
    trainer = GRPOTrainer(
        model=parameters["model"],
        reward_funcs=reward.trl(**parameters["reward"]["columns"]),
        args=GRPOConfig(
            **{
                "output_dir": run.checkpoints,
                "max_steps": run.config["num_iterations"],
                "seed": run.config["seed"],
                "logging_steps": 1,
                "report_to": "none",
                "disable_tqdm": True,
                **grpo,
            }
        ),
        train_dataset=rows(data["train"], data),
        eval_dataset=rows(data["validation"], data, data["validation_rows"]),
        peft_config=LoraConfig(**parameters["lora"]) if parameters["lora"] else None,
        callbacks=[report],
    )
    print(f"starting from {start or parameters['model']}", flush=True)
    trainer.train(resume_from_checkpoint=None if start is None else str(start))
    if report.stopped:
        sys.exit(run.STOPPED)
    trainer.save_model(str(Path(run.checkpoints) / "final"))


main()
