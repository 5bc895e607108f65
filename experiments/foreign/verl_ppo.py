"""Runs verl's trainer as a run of editrl: its settings, checkpoints, metrics and reward.

verl loads `compute_score` from this file. Its `file` logger writes the metrics, which this script copies into the run. verl does not
save on request, so a stopped run continues from the last checkpoint of `trainer.save_freq`. Read against verl 0.9.1, and not run with it.
"""

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/clients"))

from editrl_reward import Reward, editrl_run

METRICS = {
    "critic/score/mean": "reward/mean",
    "actor/pg_loss": "policy/loss",
    "actor/grad_norm": "policy/grad_norm",
    "actor/kl_loss": "policy/kl",
    "actor/lr": "policy/learning_rate",
    "actor/entropy": "policy/entropy",
    "response_length/mean": "episode/length",
    "response_length/clip_ratio": "episode/non_stop_rate",
}
POLL_S = 0.5


@lru_cache(maxsize=None)
def _scorer(url, prompt):
    return Reward(url).verl(prompt=prompt)


def compute_score(*, url, prompt, **row):
    """verl passes `url` and `prompt` from `reward.custom_reward_function.reward_kwargs`, and the rest of each answer."""
    return _scorer(url, prompt)(**row)


def overrides_of(run):
    """Arguments of main_ppo."""
    reward = "reward.custom_reward_function"
    settings = {
        **run.parameters["verl"],
        f"{reward}.path": os.path.abspath(__file__),
        f"{reward}.name": "compute_score",
        f"+{reward}.reward_kwargs.url": run.parameters["reward"]["url"],
        f"+{reward}.reward_kwargs.prompt": run.parameters["reward"]["prompt"],
        "data.seed": run.config["seed"],
        "trainer.total_training_steps": run.config["num_iterations"],
        "trainer.experiment_name": run.config["run_name"],
        "trainer.default_local_dir": os.path.abspath(run.checkpoints),
        "trainer.resume_mode": "auto",
        "trainer.logger": ["console", "file"],
    }
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()]


class Metrics:
    """Copies lines of verl's file logger, each `{"step", "data"}`, into the run."""

    def __init__(self, run, path):
        self.run, self.path, self.offset = run, path, 0

    def copy(self):
        if not os.path.exists(self.path):
            return
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # verl is still writing it.
                self.offset += len(line)
                entry = json.loads(line)
                self.run.log(entry["step"], dict(self.named(entry["data"])))

    def named(self, data):
        """Held-out means of all datasets become one measure, which tables compare."""
        numbers = {name: value for name, value in data.items() if isinstance(value, (int, float))}
        held_out = [value for name, value in numbers.items() if name.startswith("val-core/") and "/mean@" in name]
        if held_out:
            yield "validation/sampled/mean", sum(held_out) / len(held_out)
        for name, value in numbers.items():
            yield METRICS.get(name, f"verl/{name}"), value


def main():
    run = editrl_run()
    path = os.path.join(run.checkpoints, "verl_metrics.jsonl")
    # verl writes its own file for each start.
    Path(path).unlink(missing_ok=True)
    metrics = Metrics(run, path)
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *overrides_of(run)]
    child = subprocess.Popen(command, env={**os.environ, "VERL_FILE_LOGGER_PATH": path})
    while True:
        try:
            code = child.wait(POLL_S)
            break
        except subprocess.TimeoutExpired:
            metrics.copy()
            if run.should_stop():
                child.terminate()
    metrics.copy()
    sys.exit(run.STOPPED if run.should_stop() else code)


if __name__ == "__main__":
    main()
