/**
 * Kills launches at random moments and counts what stays behind: `node dist/scripts/bench/kill_launches.js [kills] [seed]`.
 * Every launch is a run of a foreign command of two ranks that counts in a file and begins where it stopped; the launcher, one
 * worker or a whole process group gets SIGKILL or SIGTERM, the same run is started again, and in the end its file is
 * compared with that of a run that nobody killed. With EDITRL_KILL_CONFIG a config of this program's own trainer takes
 * its place, with EDITRL_KILL_WITH as its overlays (separated by commas); then the weights are compared.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { RandomStream } from '../../src/core/random.js';

const COMMAND = resolve(import.meta.dirname, '../../src/cli/main.js');
/** Carried by everything that is started here. */
const MARK = 'EDITRL_KILL_BENCH';
const STEPS = 12;
/** Processes of a killed launcher may take so long to end. */
const ENDING_MS = 8000;

/** Adds a line a step, the first rank alone; a line is appended whole, so that a kill tears none. */
const TRAINER = `
n=$(cat "$RUN_DIR/count" 2>/dev/null | wc -l)
while [ $n -lt ${STEPS} ]; do
  n=$((n + 1))
  [ "$RANK" = 0 ] && echo $n >> "$RUN_DIR/count" && echo "{\\"iteration\\": $n, \\"loss\\": 1}" >> "$EDITRL_METRICS"
  sleep 0.1
done
`;

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
    APP__DATA_DIR: process.env['APP__DATA_DIR'] ?? 'data',
    [MARK]: this.dir,
  };
  readonly tally: Tally = { kills: 0, missed: 0, orphans: 0, locks: 0, differences: 0 };
  readonly #native = process.env['EDITRL_KILL_CONFIG'];

  constructor(private readonly random: RandomStream) {
    mkdirSync(join(this.dir, 'runs'), { recursive: true });
  }

  async go(kills: number): Promise<void> {
    await this.#untilDone('untouched');
    let started = performance.now();
    await this.#untilDone('timed');
    const wholeMs = performance.now() - started;
    let run = 0;
    for (let attempts = 0; this.tally.kills < kills; attempts++) {
      const name = `killed_${run}`;
      started = performance.now();
      const hit = await this.#killOnce(name, this.random.uniform() * wholeMs);
      if (hit) this.tally.kills++;
      else this.tally.missed++;
      // A few kills to every run, and then to its end.
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
    const overlays = (process.env['EDITRL_KILL_WITH'] ?? '').split(',').filter(Boolean);
    const args =
      this.#native === undefined
        ? ['run', this.#foreignConfig(), '--set', `run_name=${name}`]
        : ['run', this.#native, ...overlays.flatMap((file) => ['--with', file]), '--set', `run_name=${name}`];
    return spawn(process.execPath, [COMMAND, ...args], {
      env: this.#env,
      stdio: ['ignore', 'ignore', 'pipe'],
      detached: true,
    });
  }

  #foreignConfig(): string {
    const file = join(this.dir, 'counts.jsonnet');
    const config = {
      task: 'external',
      num_iterations: STEPS,
      launch: { processes: 2, command: ['/bin/sh', '-c', TRAINER] },
    };
    writeFileSync(
      file,
      `${JSON.stringify(config)} + { run_name: std.extVar('APP__RUN_NAME'), base_exp_dir: std.extVar('APP__BASE_EXP_DIR') }`,
    );
    return file;
  }

  /** Starts the run once and must see it finish: a lock that needs a hand shows here. */
  async #untilDone(name: string): Promise<void> {
    const launcher = this.#start(name);
    let errors = '';
    launcher.stderr?.setEncoding('utf8').on('data', (text: string) => (errors += text));
    const code = await ended(launcher);
    if (code === 0) return;
    this.tally.locks++;
    process.stderr.write(`${name} did not finish (code ${code}):\n${errors}\n`);
  }

  /** True when something was hit while the run was under way. */
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
      return false; // It ended in this very moment, or it leads no group.
    }
  }

  /** Live processes that were started here. */
  #left(): number[] {
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
      .map(Number)
      .filter((pid) => argumentOf(pid).includes(`${MARK}=${this.dir}\0`));
  }

  #equal(a: string, b: string): boolean {
    const [first, second] = [a, b].map((name) => this.#product(name));
    return first !== null && second !== null && first.equals(second);
  }

  #product(name: string): Buffer | null {
    const dir = join(this.dir, 'runs', name);
    if (this.#native === undefined) return readOrNull(join(dir, 'count'));
    const newest = readdirSync(join(dir, 'checkpoints')).sort().at(-1) ?? '';
    return readOrNull(join(dir, 'checkpoints', newest, 'policy.safetensors'));
  }
}

/** A process's environment, each entry ended by a NUL; '' when it is gone. */
function argumentOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8');
  } catch {
    return '';
  }
}

function readOrNull(path: string): Buffer | null {
  return existsSync(path) ? readFileSync(path) : null;
}

function ended(child: ChildProcess): Promise<number | null> {
  return new Promise((done) => child.once('close', (code) => done(code)));
}

const kills = Number(process.argv[2] ?? 100);
const seed = Number(process.argv[3] ?? Date.now() % 100_000);
const bench = new Bench(new RandomStream(seed, 'kill_launches'));
try {
  await bench.go(kills);
  process.stdout.write(`${JSON.stringify({ seed, ...bench.tally })}\n`);
  process.exitCode = bench.tally.orphans + bench.tally.locks + bench.tally.differences === 0 ? 0 : 1;
} finally {
  bench.remove();
}
