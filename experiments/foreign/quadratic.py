"""A small trainer in the manner of torchrun: every rank is one process of this script, and rank 0 is the meeting point.

It stands for a training script that knows nothing of editrl but its environment. It minimises a noisy quadratic by averaging
the ranks' gradients, appends metrics, saves checkpoints, continues from the last one, and ends with a checkpoint on SIGTERM.
Only Python's standard library is used.
"""

import json
import math
import os
import random
import signal
import socket
import sys
import time

STOPPED = 128 + signal.SIGTERM
CONNECT_TIMEOUT_S = 60

stop_asked = False


def ask_to_stop(_signal, _frame):
    global stop_asked
    stop_asked = True


class Group:
    """The ranks of one run, over TCP: each sends a message to rank 0, which answers all of them alike."""

    def __init__(self, rank, size, address, port):
        self.rank, self.size = rank, size
        if rank == 0:
            with socket.create_server((address, port), backlog=size) as server:
                server.settimeout(CONNECT_TIMEOUT_S)
                files = [server.accept()[0].makefile("rw") for _ in range(size - 1)]
            by_rank = {json.loads(file.readline()): file for file in files}
            self.peers = [by_rank[peer] for peer in range(1, size)]
        else:
            self.peers = [connect(address, port).makefile("rw")]
            self.send(self.peers[0], rank)

    @staticmethod
    def send(file, value):
        file.write(json.dumps(value) + "\n")
        file.flush()

    @staticmethod
    def receive(file):
        line = file.readline()
        if not line:
            sys.exit("another rank has gone")
        return json.loads(line)

    def gather(self, value, combine):
        """Every rank gives a value; every rank gets what rank 0 makes of the list of them, in the order of ranks."""
        if self.rank != 0:
            self.send(self.peers[0], value)
            return self.receive(self.peers[0])
        combined = combine([value] + [self.receive(peer) for peer in self.peers])
        for peer in self.peers:
            self.send(peer, combined)
        return combined


def connect(address, port):
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    while True:
        try:
            return socket.create_connection((address, port), timeout=CONNECT_TIMEOUT_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def save(path, state):
    with open(path + ".tmp", "w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def load(path):
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)


def report(path, state):
    """Appends the metrics of one iteration. There are no prompts to hold out: the value itself is what reports compare."""
    reward = -sum(value * value for value in state["x"]) / len(state["x"])
    line = {"iteration": state["iteration"], "reward/mean": reward, "validation/greedy/mean": reward}
    if state["iteration"] > 0:
        line["policy/grad_norm"] = state["grad_norm"]
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")


def main():
    signal.signal(signal.SIGTERM, ask_to_stop)
    env = os.environ
    rank, size = int(env["RANK"]), int(env["WORLD_SIZE"])
    with open(env["EDITRL_CONFIG"]) as file:
        config = json.load(file)
    parameters = config["parameters"]
    checkpoint = os.path.join(env["EDITRL_CHECKPOINTS"], env["RUN_NAME"] + ".json")
    group = Group(rank, size, env["MASTER_ADDR"], int(env["MASTER_PORT"]))

    # Rank 0 decides where to continue, so that all ranks begin with the same numbers.
    start = {"iteration": 0, "x": [1.0] * parameters["dimensions"]}
    state = group.gather(None, lambda _: load(checkpoint) or start)
    if rank == 0:
        print(f"{'continuing' if env['RESUME'] == '1' else 'beginning'} after iteration {state['iteration']}", flush=True)
        if state["iteration"] == 0:
            report(env["EDITRL_METRICS"], state)

    while state["iteration"] < config["num_iterations"]:
        state = step(state, config, group)
        iteration = state["iteration"]
        if rank == 0:
            report(env["EDITRL_METRICS"], state)
        stop = group.gather(stop_asked, any)
        done = iteration == config["num_iterations"]
        if rank == 0 and (stop or done or iteration % parameters["save_every"] == 0):
            save(checkpoint, state)
        if stop and not done:
            print(f"rank {rank} stops after iteration {iteration}", flush=True)
            sys.exit(STOPPED)
        time.sleep(float(env.get("PAUSE_S", "0")))


def step(state, config, group):
    """One step of gradient descent. The noise depends on seed, iteration and rank alone, so that a repeated step is the same."""
    parameters = config["parameters"]
    iteration = state["iteration"] + 1
    noise = random.Random(f"{config['seed']}/{iteration}/{group.rank}")
    gradient = [2 * value + parameters["noise"] * noise.gauss(0, 1) for value in state["x"]]
    mean = group.gather(gradient, lambda all: [math.fsum(column) / len(all) for column in zip(*all)])
    x = [value - parameters["learning_rate"] * slope for value, slope in zip(state["x"], mean)]
    return {"iteration": iteration, "x": x, "grad_norm": math.sqrt(math.fsum(slope * slope for slope in mean))}


main()
