"""Logs to a run as somebody does in a notebook, by W&B's own SDK: log_with_sdk.py RUN RESUME VALUE... ("never" makes a run)."""

import sys

import wandb

name, resume, *values = sys.argv[1:]
settings = wandb.Settings(
    x_disable_stats=True,
    x_file_stream_transmit_interval=1,
)
run = wandb.init(project="edits", entity="team", id=name, resume=resume, config={"by_sdk": True}, settings=settings)
for value in values:
    print(f"noted {value}")
    run.log({"notebook/value": float(value)})
run.summary["notebook/note"] = "kept"
run.finish()
