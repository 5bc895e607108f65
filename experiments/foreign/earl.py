"""Runs EARL's own trainer, rl/nano_aha_moment.py of github.com/mair-lab/EARL, as a run of editrl: every rank is one process of this script.

The trainer stays as it is. This script gives it the run's config in its own keys, the run's folder for its checkpoints, from the last of which
it continues, and a port of its own; what it tells W&B is also written into the run: numbers as metrics, tables of episodes as episodes with
their pictures. What the trainer does not do is refused where the config asks for it.

EARL_DIR names the repository. Besides the trainer's own packages only Python's standard library is used.
"""

import hashlib
import io
import json
import math
import os
import runpy
import sys

TRAINER = os.path.join("rl", "nano_aha_moment.py")

# EARL's key, and where the run's config has its value.
SAME = {
    "random_seed": "seed",
    "num_iterations": "num_iterations",
    "assistant_prefill": "policy.assistant_prefill",
    "model_context_size": "policy.model_context_size",
    "emu3_use_logit_processor": "policy.emu3_use_logit_processor",
    "separate_language_and_vision_vocabs": "policy.separate_language_and_vision_vocabs",
    "learning_rate": "optimizer.learning_rate",
    "per_device_batch_size": "optimizer.per_device_batch_size",
    "kl_coeff": "algorithm.kl_coeff",
    "temperature": "rollout.temperature",
    "top_p": "rollout.top_p",
    "top_k": "rollout.top_k",
    "episodes_per_iteration": "rollout.episodes_per_iteration",
    "generations_per_sample": "rollout.generations_per_sample",
    "max_response_tokens": "rollout.max_response_tokens",
    "reward_function_api_base": "reward.endpoint",
    "reward_function_api_model_name": "reward.model",
    "log_episodes_every_n_iterations": "track.log_episodes_every_n_iterations",
    "save_checkpoints_every_n_iterations": "checkpoint.save_every_n_iterations",
    "keep_checkpoints_every_n_iterations": "checkpoint.keep_every_n_iterations",
}

# What EARL's trainer does, whatever its config says.
ONLY = {
    "task": "image_edit_tokens",
    "algorithm.type": "grpo",
    "algorithm.advantage.scope": "group",
    "algorithm.advantage.scale": "std",
    "algorithm.advantage.eps": 1e-4,
    "algorithm.advantage.clip": None,
    "algorithm.clip_range": None,
    "algorithm.clip_range_high": None,
    "algorithm.surrogate": "ppo",
    "algorithm.ratio": "token",
    "algorithm.aggregation": "token",
    "algorithm.inner_epochs": 1,
    "algorithm.minibatches": 1,
    "algorithm.warmup_steps": 0,
    "algorithm.reward_scale": 1,
    "algorithm.drop_zero_spread": False,
    "algorithm.train_tokens": "all",
    "data.format": "earl",
    "data.subset": "once",
    "optimizer.schedule": "constant",
    "optimizer.betas": [0.9, 0.999],
    "optimizer.eps": 1e-8,
    "optimizer.weight_decay": 0,
    "optimizer.max_grad_norm": 1,
    "optimizer.ema_decay": None,
    "policy.init": None,
    "policy.lora": None,
    "policy.trainer.type": "onnx",
    "policy.chat_words": False,
    "policy.image_header": "sampled",
    "policy.end_after_image": True,
    "rollout.refill": None,
    "rollout.ahead": 0,
    "reward.terms": [],
    "reward.also_compute": [],
    "reward.prompts.viescore_sc": None,
    "reward.prompts.viescore_pq": None,
    "reward.prompts.ground_score": None,
    "reward.max_judge_calls": None,
}

# EARL's reward, and the scores that it computes for it.
REWARDS = {
    "viescore": (True, False),
    "ground_score": (False, True),
    "sqrt(viescore_pqxground_score)": (True, True),
}

# EARL's share of a GPU's memory for vLLM where the config does not start one.
SAMPLER_MEMORY = 0.3

METRICS = {
    "train/rewards": "reward/mean",
    "train/kl_penalty": "policy/kl",
    "train/loss": "policy/loss",
    "train/grad_norm": "policy/grad_norm",
    "train/entropy": "policy/entropy",
    "train/learning_rate": "policy/learning_rate",
    "train/response_lengths": "episode/length",
}


def fail(message):
    sys.exit(f"earl.py: {message}")


def at(config, path):
    """The value at a dotted path; None where the config has none."""
    for key in path.split("."):
        config = config.get(key) if isinstance(config, dict) else None
    return config


def model_of(reference, key):
    """A path or a name of the Hub, and its revision."""
    if isinstance(reference, str):
        return reference, None
    if isinstance(reference, dict) and "hub" in reference:
        return reference["hub"], reference.get("revision")
    fail(f"{key}: found {json.dumps(reference)}; EARL's trainer takes a path or {{hub, revision}}")


def settings_of(config, name, folder):
    """The run's config in EARL's keys. Ends with a message for what EARL's trainer does not do."""
    found = {key: at(config, key) for key in ONLY}
    other = [
        f"{key}: found {json.dumps(found[key])}; EARL's trainer does {json.dumps(only)}"
        for key, only in ONLY.items()
        if found[key] != only
    ]
    mode = at(config, "reward.mode")
    if mode not in REWARDS:
        other.append(f"reward.mode: found {json.dumps(mode)}; EARL's trainer has {', '.join(REWARDS)}")
    endpoint = at(config, "reward.endpoint")
    if not isinstance(endpoint, str) or not endpoint.startswith("http"):
        other.append(f"reward.endpoint: found {json.dumps(endpoint)}; EARL's trainer asks one judge at a fixed address")
    if other:
        fail("the config asks for what EARL's trainer does not do\n  " + "\n  ".join(other))
    model, revision = model_of(at(config, "policy.model"), "policy.model")
    tokenizer, _ = model_of(at(config, "policy.tokenizer"), "policy.tokenizer")
    vie, ground = REWARDS[mode]
    train, held_out = at(config, "data.train"), at(config, "data.validation")
    hub = at(config, "track.push_to_hub") or {}
    memory = at(config, "rollout.engine.serve.gpu_memory_utilization")
    return {
        **{key: at(config, path) for key, path in SAME.items()},
        "model_path": model,
        "model_revision": revision,
        "tokenizer_path": tokenizer,
        "train_paths_file": [source["path"] for source in train],
        "coefficients": [source["coefficient"] for source in train],
        "val_paths_file": [source["path"] for source in held_out],
        "val_coefficients": [source["coefficient"] for source in held_out],
        "vllm_gpu_memory_utilization": SAMPLER_MEMORY if memory is None else memory,
        "reward_compute_viescore": vie,
        "reward_compute_ground_score": ground,
        "reward_final_reward": mode,
        "push_to_hub_every_n_iterations": hub.get("every_n_iterations"),
        "push_to_hub_repo_id": hub.get("repo_id"),
        "base_exp_dir": folder,
        "run_name": name,
    }


class Recorder:
    """Writes what the trainer logs into the run: its iteration i, counted from 0, is the run's i + 1."""

    def __init__(self, wandb, run_dir, metrics, answers):
        self.run_dir, self.metrics = run_dir, metrics
        # Answers of a group, which stand together in a table.
        self.answers = answers
        self.table = wandb.Table
        log, make = wandb.log, wandb.Image.__init__

        # No class of its own: a column of W&B's tables is one of pictures only where they have W&B's.
        def remember(image, *args, **kwargs):
            make(image, *args, **kwargs)
            image.editrl_made_of = args[0] if args else kwargs.get("data_or_path")

        def tell(data, *args, **kwargs):
            self.record(data)
            return log(data, *args, **kwargs)

        wandb.Image.__init__, wandb.log = remember, tell

    def record(self, data):
        if not isinstance(data.get("iteration"), int):
            return
        iteration = data["iteration"] + 1
        numbers = {}
        for key, value in data.items():
            if isinstance(value, self.table):
                self.episodes(iteration, value)
            elif key != "iteration":
                number = number_of(value)
                if number is not None:
                    numbers[METRICS.get(key, key.replace("train/reward_metrics/", "reward/"))] = number
        with open(self.metrics, "a") as file:
            file.write(json.dumps({"iteration": iteration, **numbers}) + "\n")

    def episodes(self, iteration, table):
        rows = [dict(zip(table.columns, row)) for row in table.data]
        lines = []
        for index, row in enumerate(rows):
            group, answer = divmod(index, self.answers)
            parts = {key.partition("/")[2]: finite_of(value) for key, value in row.items() if key.startswith("reward/")}
            lines.append(
                {
                    "iteration": iteration,
                    "key": f"{iteration}/{group}/{answer}",
                    "sample": f"{iteration}:{group}",
                    "instruction": row["prompt"],
                    # The table does not say which answers ended by themselves; one that did not has no picture.
                    "finished": row["pred_edited"] is not None,
                    "text": row["completion"],
                    "outcome": outcome_of(row["reward"], {key: value for key, value in parts.items() if value is not None}),
                    "source": self.picture(row["orig_image"]),
                    "edited": self.picture(row["pred_edited"]),
                    "truth": self.picture(row["gt_edited"]),
                    "advantage": finite_of(row["advantage"]),
                }
            )
        if lines:
            write_whole(
                os.path.join(self.run_dir, "episodes", f"{iteration:06d}.jsonl"),
                "".join(json.dumps(line) + "\n" for line in lines).encode(),
            )

    def picture(self, shown):
        """The name of a picture in the run's folder of media; None for none."""
        made_of = getattr(shown, "editrl_made_of", None)
        if not hasattr(made_of, "save"):
            return None
        buffer = io.BytesIO()
        made_of.convert("RGB").save(buffer, format="PNG")
        name = hashlib.sha256(buffer.getvalue()).hexdigest()
        path = os.path.join(self.run_dir, "media", f"{name}.png")
        if not os.path.exists(path):
            write_whole(path, buffer.getvalue())
        return name


def number_of(value):
    """A number of Python or numpy; None for anything else."""
    if isinstance(value, (bool, str, bytes)) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def finite_of(value):
    """A finite number; None for anything else, which JSON has no number for."""
    number = number_of(value)
    return number if number is not None and math.isfinite(number) else None


def outcome_of(reward, parts):
    """What is no number is no score."""
    value = finite_of(reward)
    if value is None:
        return {"kind": "unscored", "reason": "no_number", "detail": f"the trainer told a reward of {reward}", "parts": parts}
    return {"kind": "scored", "value": value, "normalised": min(1.0, max(0.0, value / 10)), "parts": parts}


def write_whole(path, data):
    """The file appears whole or not at all."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".tmp", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def main():
    env = os.environ
    repository = env.get("EARL_DIR")
    script = os.path.join(repository or "", TRAINER)
    if repository is None or not os.path.exists(script):
        fail(f"EARL_DIR: found {json.dumps(repository)}, in which there is no {TRAINER}; let it name a clone of github.com/mair-lab/EARL")
    with open(env["EDITRL_CONFIG"]) as file:
        config = json.load(file)
    settings = settings_of(config, env["RUN_NAME"], env["EDITRL_CHECKPOINTS"])
    # A file for each rank, so that none reads what another is writing.
    written = os.path.join(env["EDITRL_CHECKPOINTS"], f"earl_{env.get('RANK', '0')}.json")
    write_whole(written, (json.dumps(settings, indent=2) + "\n").encode())
    # The ranks meet at a port beside torchrun's own, which its agents use.
    port = int(env.get("MASTER_PORT", "29500"))
    env["APP__MASTER_ADDR"] = env.get("MASTER_ADDR", "localhost")
    env["APP__MASTER_TRAINING_PORT"] = str(port - 1 if port > 60_000 else port + 1)
    # As where it is started by hand from the repository.
    sys.path[:0] = [os.path.dirname(script), repository]
    if env.get("RANK", "0") == "0":
        import wandb

        Recorder(wandb, env["RUN_DIR"], env["EDITRL_METRICS"], settings["generations_per_sample"])
    sys.argv = [script, written]
    runpy.run_path(script, run_name="__main__")


main()
