"""Runs flow_grpo's trainer as a run of editrl. Every rank is one process of this script, which is also the trainer's config file.

The trainer stays as it is. Its reward is the reward server, and what it logs to W&B is also written into the run. Its iterations are
epochs. flow_grpo saves adapters without the optimizer, and not on request, so a run continues from its last adapter with a new
optimizer. Read against flow_grpo ac4c86e, and not run with it.
"""

import importlib.util
import json
import os
import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/clients"))

from editrl_reward import Reward, editrl_run

METRICS = {
    "reward_avg": "reward/mean",
    "eval_reward_avg": "validation/sampled/mean",
    "reward_std_mean": "reward/std",
    "loss": "policy/loss",
    "kl_loss": "policy/kl",
    "clipfrac": "policy/ratio_clipped",
}
# In the folder of an adapter: the epochs before it. An adapter without this file was not written to its end.
EPOCHS = "editrl_epochs"


def last_adapter(folder):
    """The newest adapter of all starts and the epochs before it. None and 0 without one."""
    saved = [(int(path.read_text()), path.parent / "lora") for path in Path(folder).glob(f"*/checkpoints/checkpoint-*/{EPOCHS}")]
    epochs, adapter = max(saved, default=(0, None))
    return adapter, epochs


def get_config():
    """The config of the clone, with the run's settings. flow_grpo loads it from this file."""
    settings = json.loads(Path(os.environ["EDITRL_CONFIG"]).read_bytes())
    parameters, folder = settings["parameters"], Path(os.environ["EDITRL_CHECKPOINTS"]).resolve()
    spec = importlib.util.spec_from_file_location("flow_grpo_configs", Path(os.environ["FLOW_GRPO"], "config/grpo.py"))
    configs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(configs)
    config = configs.get_config(parameters["config"])
    adapter, epochs = last_adapter(folder)
    # Each start has a folder of its own, because the trainer counts its steps from 0.
    config.save_dir = config.logdir = str(folder / f"from_{epochs:06d}")
    config.seed = settings["seed"] + epochs
    config.reward_fn = {"editrl": 1.0}
    config.update(parameters["keys"])
    if adapter is not None:
        config.train.lora_path = str(adapter)
    return config


def number_of(value):
    """A number of Python, numpy or torch. None for anything else."""
    try:
        return None if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError):
        return None


class Epochs:
    """Counts the epochs of this start, which come after those of earlier starts."""

    def __init__(self, run, before):
        self.run, self.before, self.done = run, before, 0

    def record(self, data):
        """What the trainer logs about its epoch e is iteration e + 1. Held-out rewards name no epoch and belong to the finished ones."""
        numbers = {METRICS.get(name, f"flow_grpo/{name}"): number_of(value) for name, value in data.items() if name != "epoch"}
        numbers = {name: value for name, value in numbers.items() if value is not None}
        self.done = int(data["epoch"]) + 1 if "epoch" in data else self.done
        iteration = self.before + self.done
        # An earlier start has evaluated the adapter that this one began with. The trainer samples once more before it ends.
        if numbers and (self.done > 0 or self.before == 0) and iteration <= self.run.config["num_iterations"]:
            self.run.log(iteration, numbers)

    def between(self, started):
        """Called on all ranks when they have sampled for epoch `started`, counted from 0, after the checkpoint of the epochs before it."""
        folder = Path(self.run.checkpoints, f"from_{self.before:06d}")
        for saved in folder.glob("checkpoints/checkpoint-*") if self.run.rank == 0 else ():
            if not (saved / EPOCHS).exists():
                (saved / EPOCHS).write_text(str(self.before + started))
        if self.run.should_stop():
            sys.exit(self.run.STOPPED)
        if self.before + started >= self.run.config["num_iterations"]:
            sys.exit(0)


def main():
    repository = os.environ.get("FLOW_GRPO", "")
    run = editrl_run()
    script = os.path.join(repository, run.parameters["script"])
    if repository == "" or not os.path.exists(script):
        sys.exit(f"flow_grpo_run.py: FLOW_GRPO is {repository!r}, which has no {run.parameters['script']}. Let it name a clone of flow_grpo.")
    os.environ.setdefault("WANDB_MODE", "offline")
    sys.path[:0] = [os.path.dirname(script), repository]

    import flow_grpo.rewards
    import flow_grpo.stat_tracking
    import wandb

    epochs = Epochs(run, last_adapter(run.checkpoints)[1])
    score = Reward(run.parameters["reward"]["url"]).flow_grpo(**run.parameters["reward"]["columns"])
    log = wandb.log

    def record(data, *args, **kwargs):
        epochs.record(data)
        return log(data, *args, **kwargs)

    def multi_score(device, score_dict):
        def scored(images, prompts, metadata, only_strict=True):
            values, _ = score(images, prompts, metadata)
            return {"editrl": values, "avg": values}, {}

        return scored

    class Tracker(flow_grpo.stat_tracking.PerPromptStatTracker):
        """The trainer updates it once in each epoch, on all ranks."""

        started = 0

        def update(self, *args, **kwargs):
            epochs.between(self.started)
            self.started += 1
            return super().update(*args, **kwargs)

    wandb.log, flow_grpo.rewards.multi_score, flow_grpo.stat_tracking.PerPromptStatTracker = record, multi_score, Tracker
    sys.argv = [script, f"--config={os.path.abspath(__file__)}"]
    os.chdir(repository)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
