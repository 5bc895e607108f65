/** A Slurm of this one machine for a test file: its daemons, its jobs, and why it cannot be there where it cannot. */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { ROOT, sleep } from './editrl.js';

const SCRIPT = join(ROOT, 'scripts/slurm/one_machine.sh');
/** In CI a missing Slurm is a failure, not a skip. */
const REQUIRED = process.env['EDITRL_REQUIRE_SLURM'] === '1';

/** Why there can be no Slurm here; null where there can. */
export function slurmObstacle(): string | null {
  if (REQUIRED) return null;
  if (process.platform !== 'linux') return 'Slurm needs Linux';
  if (process.getuid?.() !== 0) return "Slurm's daemons need root";
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/sbin'];
  const missing = ['munged', 'slurmctld', 'slurmd', 'sbatch'].filter(
    (program) => !folders.some((folder) => existsSync(join(folder, program))),
  );
  return missing.length === 0
    ? null
    : `not installed: ${missing.join(', ')} (apt-get install slurm-wlm munge; CI does it)`;
}

export interface Task {
  /** Such as `12_3`. */
  readonly id: string;
  readonly state: string;
  readonly reason: string;
}

/** Credentials are dated in whole seconds. */
const UNREVOKED_MS = 2500;

/** The running daemons. `SLURM_CONF` of this process points at them until `stop`. */
export class TestSlurm {
  /** When a requeued task was first seen without its earlier script. */
  readonly #heldSince = new Map<string, number>();

  private constructor(
    readonly dir: string,
    readonly node: string,
  ) {}

  static start(): TestSlurm {
    const dir = mkdtempSync(join(tmpdir(), 'editrl-slurm-'));
    // Two ports, below those that systems hand out to whoever listens on any: from 32768 on Linux.
    const port = String(10_000 + 2 * (process.pid % 10_000));
    const conf = execFileSync(SCRIPT, ['start', dir], { encoding: 'utf8', env: { ...process.env, PORT: port } }).trim();
    process.env['SLURM_CONF'] = conf;
    return new TestSlurm(dir, readNodeName(conf));
  }

  stop(): void {
    execFileSync(SCRIPT, ['stop', this.dir]);
    delete process.env['SLURM_CONF'];
    rmSync(this.dir, { recursive: true, force: true });
  }

  /** Calls one of Slurm's programs; a refusal fails the test with its words. */
  call(program: string, ...args: readonly string[]): string {
    const done = spawnSync(program, args, { encoding: 'utf8' });
    if (done.status !== 0) throw new Error(`${program} ${args.join(' ')}: ${done.stderr}`);
    return done.stdout;
  }

  /** All jobs that it knows, ended ones too. */
  tasks(): Task[] {
    return this.call('squeue', '--noheader', '--array', '--states=all', '--format=%i|%T|%r')
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => {
        const [id, state, reason] = line.split('|');
        return { id, state, reason };
      });
  }

  task(id: string): Task | undefined {
    return this.tasks().find((task) => task.id === id);
  }

  /**
   * Slurm holds a requeued job back for two minutes; a test does not wait for them, but it does wait for the end of the script's
   * earlier start, and some seconds more: started before that, the job would take the earlier script's exit code for its own, and
   * started in the second in which that one was ended, its credential counts as revoked and it fails unstarted.
   */
  hurry(): void {
    const held = this.tasks().filter(({ state, reason }) => state === 'PENDING' && reason === 'BeginTime');
    for (const id of this.#heldSince.keys()) if (!held.some((task) => task.id === id)) this.#heldSince.delete(id);
    for (const { id } of held) {
      if (this.#hasScript(id)) continue;
      const since = this.#heldSince.get(id) ?? Date.now();
      this.#heldSince.set(id, since);
      if (Date.now() - since > UNREVOKED_MS) this.call('scontrol', 'update', `JobId=${id}`, 'StartTime=now');
    }
  }

  #hasScript(id: string): boolean {
    const raw = this.call('squeue', '--noheader', `--jobs=${id}`, '--format=%A').trim();
    return spawnSync('pgrep', ['--full', `^slurmstepd: \\[${raw}\\.`]).status === 0;
  }

  /** Waits until something holds of its jobs; fails with what it knew at last. */
  async until(
    what: string,
    holds: () => boolean,
    options: { readonly hurry?: boolean; readonly withinS?: number } = {},
  ): Promise<void> {
    const deadline = Date.now() + (options.withinS ?? 60) * 1000;
    while (!holds()) {
      if (Date.now() > deadline) {
        throw new Error(`waited in vain until ${what}:\n${JSON.stringify(this.tasks(), null, 2)}`);
      }
      if (options.hurry === true) this.hurry();
      await sleep(100);
    }
  }

  /** The state of its only node, in lower case, such as `down` or `mixed`. */
  nodeState(): string {
    return this.call('sinfo', '--noheader', '--format=%T').trim();
  }

  /** Brings the node back; it may have come back by itself, as ReturnToService lets it. */
  async resumeNode(): Promise<void> {
    await this.until('the node is back', () => {
      if (!/^(down|drain)/.test(this.nodeState())) return true;
      spawnSync('scontrol', ['update', `NodeName=${this.node}`, 'State=RESUME']);
      return false;
    });
  }

  /** Cancels whatever a test left behind, so that the next one has the machine to itself. */
  cancelAll(): void {
    this.call('scancel', '--user=root');
  }

  /** Waits until no job waits or runs any more. */
  async idle(): Promise<void> {
    const ended = new Set(['COMPLETED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'NODE_FAIL', 'OUT_OF_MEMORY']);
    await this.until('all jobs have ended', () => this.tasks().every(({ state }) => ended.has(state)), { hurry: true });
  }
}

function readNodeName(conf: string): string {
  const found = /^NodeName=(\S+)/m.exec(readFileSync(conf, 'utf8'));
  if (found === null) throw new Error(`${conf} names no node`);
  return found[1];
}
