/**
 * Kills launches at random moments and counts what they leave behind:
 *
 *   node dist/scripts/bench/kill_launches.js [--foreign N] [--native N] [--seed S]     (100 foreign kills by default)
 *
 * The launcher, one worker or a whole process group gets SIGKILL or SIGTERM, the same run is started again, and in the end it is
 * compared with a run that was not killed. A foreign run is a shell script with two ranks that counts in a file and continues where it
 * stopped. A native run is GRPO with two processes at the smallest size and its own judge: its last weights, its optimizer's
 * state and its metrics, except times, have to be the same.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { UsageError } from '../../src/core/errors.js';
import { RandomStream } from '../../src/core/random.js';

const COMMAND = resolve(import.meta.dirname, '../../src/cli/main.js');
/** The checkout: this file is compiled to dist/scripts/bench. */
const ROOT = resolve(import.meta.dirname, '../../..');
/** An environment variable that marks all processes started here. */
const MARK = 'EDITRL_KILL_BENCH';
/** The time that processes of a killed launcher may take to end. */
const ENDING_MS = 8000;

/** A kind of run that is launched and killed. */
interface Kind {
  readonly name: 'foreign' | 'native';
  /** The arguments of `editrl` that start the run; `dir` is the bench's folder. */
  readonly command: (dir: string, runName: string) => readonly string[];
  /** The results of a finished run as one text; null if they are incomplete. */
  readonly product: (runDir: string) => string | null;
}

const FOREIGN_STEPS = 12;

/** Adds a line per step, only on the first rank; each line is appended in one write, so that a kill cannot split it. */
const TRAINER = `
n=$(cat "$RUN_DIR/count" 2>/dev/null | wc -l)
while [ $n -lt ${FOREIGN_STEPS} ]; do
  n=$((n + 1))
  [ "$RANK" = 0 ] && echo $n >> "$RUN_DIR/count" && echo "{\\"iteration\\": $n, \\"loss\\": 1}" >> "$EDITRL_METRICS"
  sleep 0.1
done
`;

const foreign: Kind = {
  name: 'foreign',
  command: (dir, runName) => {
    const file = join(dir, 'counts.jsonnet');
    const config = {
      task: 'external',
      num_iterations: FOREIGN_STEPS,
      launch: { processes: 2, command: ['/bin/sh', '-c', TRAINER] },
    };
    const rest = `{ run_name: std.extVar('APP__RUN_NAME'), base_exp_dir: std.extVar('APP__BASE_EXP_DIR') }`;
    writeFileSync(file, `${JSON.stringify(config)} + ${rest}`);
    return ['run', file, '--set', `run_name=${runName}`];
  },
  product: (runDir) => {
    const count = join(runDir, 'count');
    return existsSync(count) ? readFileSync(count, 'utf8') : null;
  },
};

const NATIVE_STEPS = 12;

const native: Kind = {
  name: 'native',
  command: (_dir, runName) => {
    const overlays = ['configs/lib/tiny.libsonnet', 'test/e2e/small.libsonnet'];
    const sets = [`run_name=${runName}`, `num_iterations=${NATIVE_STEPS}`, 'launch.processes=2'];
    return [
      'run',
      join(ROOT, 'configs/sft_s__rl_s.jsonnet'),
      ...overlays.flatMap((file) => ['--with', join(ROOT, file)]),
      ...sets.flatMap((set) => ['--set', set]),
    ];
  },
  product: (runDir) => {
    const checkpoint = join(runDir, 'checkpoints', String(NATIVE_STEPS).padStart(6, '0'));
    if (!existsSync(checkpoint)) return null;
    const states = ['policy.safetensors', 'optimizer.safetensors'].map((file) => {
      const bytes = readFileSync(join(checkpoint, file));
      return `${file} ${createHash('sha256').update(bytes).digest('hex')}`;
    });
    const metrics = readFileSync(join(runDir, 'metrics.jsonl'), 'utf8').split('\n').slice(0, -1).map(withoutTimes);
    return [...states, ...metrics].join('\n');
  },
};

/** A line of metrics without the values that depend on the machine's speed. */
function withoutTimes(line: string): string {
  const all = Object.entries(JSON.parse(line) as Record<string, unknown>);
  return JSON.stringify(all.filter(([name]) => !/^time|tokens\/s|latency|seconds|_ms$|_s$/.test(name)));
}

type Target = 'launcher' | 'worker' | 'group';

interface Tally {
  kills: number;
  missed: number;
  orphans: number;
  locks: number;
  differences: number;
}

class Bench {
  readonly dir = mkdtempSync(join(tmpdir(), 'editrl-kills-'));
  readonly #env = {
    ...process.env,
    APP__BASE_EXP_DIR: join(this.dir, 'runs'),
    APP__DATA_DIR: join(this.dir, 'data'),
    [MARK]: this.dir,
  };
  readonly tally: Tally = { kills: 0, missed: 0, orphans: 0, locks: 0, differences: 0 };

  constructor(
    private readonly kind: Kind,
    private readonly random: RandomStream,
  ) {
    mkdirSync(join(this.dir, 'runs'), { recursive: true });
  }

  async go(kills: number): Promise<void> {
    await this.#untilDone('untouched');
    const started = performance.now();
    await this.#untilDone('timed');
    const wholeMs = performance.now() - started;
    let run = 0;
    for (let attempts = 0; this.tally.kills < kills; attempts++) {
      const name = `killed_${run}`;
      const hit = await this.#killOnce(name, this.random.uniform() * wholeMs);
      if (hit) this.tally.kills++;
      else this.tally.missed++;
      // Each run is killed a few times and then runs to its end.
      if (hit && attempts % 3 !== 2) continue;
      await this.#untilDone(name);
      if (!this.#equal(name, 'untouched')) this.tally.differences++;
      run++;
    }
    await this.#untilDone(`killed_${run}`);
    if (!this.#equal(`killed_${run}`, 'untouched')) this.tally.differences++;
  }

  remove(): void {
    rmSync(this.dir, { recursive: true, force: true });
  }

  #start(name: string): ChildProcess {
    return spawn(process.execPath, [COMMAND, ...this.kind.command(this.dir, name)], {
      env: this.#env,
      stdio: ['ignore', 'ignore', 'pipe'],
      detached: true,
    });
  }

  /** Starts the run once; it must finish. A lock that has to be removed by hand is noticed here. */
  async #untilDone(name: string): Promise<void> {
    const launcher = this.#start(name);
    let errors = '';
    launcher.stderr?.setEncoding('utf8').on('data', (text: string) => (errors += text));
    const code = await ended(launcher);
    if (code === 0) return;
    this.tally.locks++;
    process.stderr.write(`${name} did not finish (code ${code}):\n${errors}\n`);
  }

  /** Starts the run and kills a part of it; returns whether a process was killed while the run was under way. */
  async #killOnce(name: string, afterMs: number): Promise<boolean> {
    const launcher = this.#start(name);
    launcher.stderr?.resume();
    const over = ended(launcher);
    await delay(afterMs);
    const target = (['launcher', 'worker', 'group'] as const)[this.random.integer(3)];
    const signal = this.random.uniform() < 0.5 ? 'SIGKILL' : 'SIGTERM';
    const hit = launcher.exitCode === null && this.#hit(target, signal, launcher.pid ?? 0);
    await over;
    const deadline = performance.now() + ENDING_MS;
    while (this.#left().length > 0 && performance.now() < deadline) await delay(20);
    const left = this.#left();
    this.tally.orphans += left.length;
    for (const pid of left) process.kill(pid, 'SIGKILL');
    if (left.length > 0) process.stderr.write(`${name}: ${left.length} processes left after ${signal} to ${target}\n`);
    return hit;
  }

  #hit(target: Target, signal: NodeJS.Signals, launcher: number): boolean {
    const workers = this.#left().filter((pid) => pid !== launcher && argumentOf(pid).includes('RANK='));
    const worker = workers[this.random.integer(Math.max(1, workers.length))];
    const pid = { launcher, worker, group: this.random.uniform() < 0.5 || worker === undefined ? -launcher : -worker };
    const chosen = pid[target];
    if (chosen === undefined) return false;
    try {
      process.kill(chosen, signal);
      return true;
    } catch {
      return false; // The process has just ended, or it does not lead a group.
    }
  }

  /** Processes started here that are still alive. */
  #left(): number[] {
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
      .map(Number)
      .filter((pid) => argumentOf(pid).includes(`${MARK}=${this.dir}\0`));
  }

  #equal(a: string, b: string): boolean {
    const [first, second] = [a, b].map((name) => this.kind.product(join(this.dir, 'runs', name)));
    return first !== null && first === second;
  }
}

/** A process's environment, with a NUL after each entry; '' if the process is gone. */
function argumentOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8');
  } catch {
    return '';
  }
}

function ended(child: ChildProcess): Promise<number | null> {
  return new Promise((done) => child.once('close', (code) => done(code)));
}

/** How many kills of each kind, and the seed of the random moments. */
function readArguments(): { readonly kills: readonly (readonly [Kind, number])[]; readonly seed: number } {
  const { values } = parseArgs({
    options: { foreign: { type: 'string' }, native: { type: 'string' }, seed: { type: 'string' } },
  });
  const wholeNumber = (name: keyof typeof values, otherwise: number): number => {
    const number = Number(values[name] ?? otherwise);
    if (Number.isInteger(number) && number >= 0) return number;
    throw new UsageError(`--${name}: found '${values[name]}'; allowed: a whole number >= 0`);
  };
  const nothingSaid = values.foreign === undefined && values.native === undefined;
  return {
    kills: [
      [foreign, wholeNumber('foreign', nothingSaid ? 100 : 0)],
      [native, wholeNumber('native', 0)],
    ],
    seed: wholeNumber('seed', Date.now() % 100_000),
  };
}

const { kills, seed } = readArguments();
for (const [kind, number] of kills.filter(([, wanted]) => wanted > 0)) {
  const bench = new Bench(kind, new RandomStream(seed, `kill_launches ${kind.name}`));
  try {
    await bench.go(number);
    process.stdout.write(`${JSON.stringify({ kind: kind.name, seed, ...bench.tally })}\n`);
    if (bench.tally.orphans + bench.tally.locks + bench.tally.differences > 0) process.exitCode = 1;
  } finally {
    bench.remove();
  }
}
