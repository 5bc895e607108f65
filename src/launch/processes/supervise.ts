/**
 * Supervises the ranks of one attempt: starts them with torchrun's environment, watches them and stops them together.
 * If one dies or hangs, all end. The Launcher restarts attempts.
 */
import type { Serializable } from 'node:child_process';
import { createServer, type AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { endMarked, GuardedChild, type ChildExit } from './child.js';
import { devicesOfRank, ORDER_VARIABLE, PCI_ORDER, type Placement } from '../machine/devices.js';
import { exitReason, MemoryKills, MemoryMessages, RunFailed, type EndReason } from './failure.js';
import type { Guardian } from './guardian.js';

/** The rendezvous address. All ranks of a run are on this machine. */
export const MASTER_ADDRESS = '127.0.0.1';

/** Seconds between SIGTERM and SIGKILL for ranks that are ended. */
const GRACE_S = 5;
/** Seconds that the other ranks have after the first one has stopped on request. */
const STRAGGLER_S = 10;
/** Milliseconds to wait for ranks that die because another died. The way each ended then identifies the first one. */
const SETTLE_MS = 200;

/** A running rank, as passed to the callbacks. */
export interface Worker {
  readonly rank: number;
  /** Its pid, which is also the id of its process group. */
  readonly pid: number;
  /** Start time of the process, from `processStart`. */
  readonly start: string;
  /** Sends a message. Requires `ipc`. */
  send(message: Serializable): void;
  /** Sends a signal to its whole process group. */
  signal(signal: NodeJS.Signals): void;
}

/** The command of one rank. */
export interface RankCommand {
  readonly rank: number;
  /** The program and its arguments. */
  readonly command: readonly string[];
  /** The whole environment. */
  readonly env: NodeJS.ProcessEnv;
}

/** The ranks to start and how to watch them. */
export interface Supervision {
  /** The run's name, for messages. */
  readonly run: string;
  readonly guardian: Guardian;
  /** The ranks, in order from 0. */
  readonly ranks: readonly RankCommand[];
  /** Working folder of the ranks. Default: the folder of this process. */
  readonly cwd?: string;
  /** True for editrl's own workers, which exchange messages with the launcher. Default: false. */
  readonly ipc?: boolean;
  /**
   * Seconds without a sign of life after which a rank counts as hung. Output, messages and `progress` are signs of
   * life.
   */
  readonly heartbeatTimeoutS: number;
  /** A number such as the size of a metrics file. A change is a sign of life of all ranks. Read about once a second. */
  readonly progress?: () => number;
  /** Requests a graceful end. */
  readonly stop: AbortSignal;
  /** Ends all ranks at once. */
  readonly kill?: AbortSignal;
  /** Asks the ranks to stop. Default: sends SIGTERM to every group. */
  readonly askToStop?: (workers: readonly Worker[]) => void;
  /** Called for every rank that is ended because of another one, right before its SIGTERM. */
  readonly beforeEnd?: (worker: Worker) => void;
  /** Seconds between SIGTERM and SIGKILL. Default: 5. */
  readonly graceS?: number;
  /** Seconds for a graceful end before SIGTERM and SIGKILL. Default: no limit. */
  readonly stopWithinS?: number;
  /** Receives every line that a rank prints to stdout or stderr. */
  readonly onLine: (rank: number, line: string) => void;
  readonly onMessage?: (worker: Worker, message: unknown) => void;
  /** Called once all ranks have been started. */
  readonly onStarted?: (started: Started) => void;
}

/** The processes of a started attempt. */
export interface Started {
  /** The mark in the environment of every process of the attempt. */
  readonly mark: string;
  readonly workers: readonly Worker[];
}

export interface RankExit extends ChildExit {
  readonly rank: number;
}

/** `done`: every rank ended with code 0. `stopped`: a stop was requested, and `exits` contains how each rank ended. */
export interface SupervisionEnd {
  readonly kind: 'done' | 'stopped';
  readonly exits: readonly RankExit[];
}

/**
 * Runs the ranks to their end. No process of theirs is left when it returns or raises.
 * Raises RunFailed when a rank dies, hangs or ends with a code other than 0 without a requested stop. Raises
 * ConfigError when the program cannot be started.
 */
export async function supervise(plan: Supervision): Promise<SupervisionEnd> {
  const attempt = new Attempt(plan);
  try {
    return await attempt.run();
  } finally {
    attempt.dispose();
  }
}

/** The environment of one rank: the environment of this process, then `entries`, then torchrun's variables. */
export function rankEnvironment(
  rank: number,
  place: { readonly processes: number; readonly placement: Placement; readonly port: number },
  env: Readonly<Record<string, string>>,
): NodeJS.ProcessEnv {
  const { processes, placement, port } = place;
  return {
    ...(placement.threads > 0 ? { OMP_NUM_THREADS: String(placement.threads) } : {}),
    ...process.env,
    ...env,
    [ORDER_VARIABLE]: PCI_ORDER,
    CUDA_VISIBLE_DEVICES: devicesOfRank(placement, rank, processes).join(','),
    RANK: String(rank),
    LOCAL_RANK: String(rank),
    GROUP_RANK: '0',
    WORLD_SIZE: String(processes),
    LOCAL_WORLD_SIZE: String(processes),
    MASTER_ADDR: MASTER_ADDRESS,
    MASTER_PORT: String(port),
  };
}

/**
 * The environment of one of editrl's own workers.
 * Limits glibc's allocator to two arenas, unless the user sets another limit. The default of eight per core scatters
 * freed memory, and memory use then grows for hundreds of iterations.
 */
export function workerEnvironment(...of: Parameters<typeof rankEnvironment>): NodeJS.ProcessEnv {
  return { MALLOC_ARENA_MAX: '2', ...rankEnvironment(...of) };
}

/** A free port on the loopback interface. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(0, MASTER_ADDRESS, resolve);
  });
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Why an attempt has to be ended early. */
interface Fault extends EndReason {
  readonly rank: number;
  readonly exit: ChildExit | null;
}

interface Rank extends Worker {
  readonly child: GuardedChild;
  readonly talk: MemoryMessages;
  /** Milliseconds without a sign of life, as counted by this process. */
  silentMs: number;
  signs: number;
}

class Attempt {
  readonly #ranks: Rank[] = [];
  readonly #exits: RankExit[] = [];
  readonly #faults: Fault[] = [];
  readonly #memoryKills = new MemoryKills();
  readonly #disposals: (() => void)[] = [];
  #state: 'running' | 'stopping' | 'ending' = 'running';
  #stopped = false;
  readonly #mark: string;
  readonly #graceS: number;
  /** Resolves when the ranks should be ended. */
  readonly #over: Promise<void>;
  #end: () => void = () => {};

  constructor(private readonly plan: Supervision) {
    this.#over = new Promise((resolve) => (this.#end = resolve));
    this.#mark = plan.guardian.markAttempt();
    this.#graceS = plan.graceS ?? GRACE_S;
  }

  async run(): Promise<SupervisionEnd> {
    const { plan } = this;
    const ended: Promise<void>[] = [];
    try {
      for (const rank of plan.ranks) {
        const started = await this.#start(rank);
        this.#ranks.push(started);
        ended.push(this.#follow(started));
      }
      this.#memoryKills.sample(this.#pids);
    } catch (error) {
      this.#state = 'ending';
      await this.#endAll();
      throw error;
    }
    plan.onStarted?.({ mark: this.#mark, workers: this.#ranks });
    this.#watch();
    const all = Promise.all(ended);
    await Promise.race([all, this.#over]);
    if (this.#faults.length > 0 && plan.ranks.length > 1) await Promise.race([all, delay(SETTLE_MS)]);
    this.#state = 'ending';
    await this.#endAll();
    await all;
    // After an orderly end no process is left. Otherwise, some may have moved to sessions of their own.
    if (this.#faults.length > 0 || this.#stopped) await endMarked(this.#mark, this.#graceS);
    if (this.#faults.length > 0 && !this.#stopped) throw this.#failure();
    return { kind: this.#stopped ? 'stopped' : 'done', exits: this.#exits };
  }

  dispose(): void {
    for (const dispose of this.#disposals) dispose();
  }

  async #start({ rank, command, env }: RankCommand): Promise<Rank> {
    const { plan } = this;
    const talk = new MemoryMessages();
    const child = await GuardedChild.start(
      {
        command,
        env,
        mark: this.#mark,
        ...(plan.cwd === undefined ? {} : { cwd: plan.cwd }),
        ipc: plan.ipc ?? false,
        graceS: this.#graceS,
        onLine: (line) => {
          talk.add(line);
          plan.onLine(rank, line);
        },
        onMessage: (message) => plan.onMessage?.(started, message),
      },
      plan.guardian,
    );
    const started: Rank = {
      rank,
      pid: child.pid,
      start: child.start,
      child,
      talk,
      silentMs: 0,
      signs: 0,
      send: (message) => child.send(message),
      signal: (signal) => child.signal(signal),
    };
    return started;
  }

  get #pids(): number[] {
    return this.#ranks.map(({ pid }) => pid);
  }

  async #follow({ rank, child, talk }: Rank): Promise<void> {
    const exit = await child.ended;
    this.#exits.push({ rank, ...exit });
    if (this.#state === 'stopping') this.#endWithin(STRAGGLER_S);
    if (this.#state !== 'running' || exit.code === 0) return;
    const memory = { printed: talk.latest(), kill: this.#memoryKills.recent() };
    this.#faults.push({ rank, exit, ...exitReason(exit, memory) });
    this.#end();
  }

  #watch(): void {
    const { plan } = this;
    const onAbort = (signal: AbortSignal | undefined, act: () => void): void => {
      if (signal === undefined) return;
      signal.addEventListener('abort', act);
      this.#disposals.push(() => signal.removeEventListener('abort', act));
      if (signal.aborted) act();
    };
    onAbort(plan.stop, () => this.#askToStop());
    onAbort(plan.kill, () => {
      this.#stopped = true;
      for (const { child } of this.#ranks) child.signal('SIGKILL');
      this.#end();
    });
    const everyMs = Math.min(1000, plan.heartbeatTimeoutS * 250);
    let before = performance.now();
    let progress = plan.progress?.() ?? 0;
    const timer = setInterval(() => {
      const now = performance.now();
      // Time during which this process was itself stopped is not silence.
      const passed = Math.min(now - before, 2 * everyMs);
      before = now;
      const latest = plan.progress?.() ?? 0;
      const moved = latest !== progress;
      progress = latest;
      this.#memoryKills.sample(this.#pids, now);
      for (const rank of this.#ranks) this.#listen(rank, passed, moved);
    }, everyMs);
    this.#disposals.push(() => clearInterval(timer));
  }

  #listen(rank: Rank, passedMs: number, moved: boolean): void {
    const { activity } = rank.child;
    const silent = activity === rank.signs && !moved;
    rank.signs = activity;
    rank.silentMs = silent ? rank.silentMs + passedMs : 0;
    if (!rank.child.isAlive || this.#state === 'ending' || rank.silentMs <= this.plan.heartbeatTimeoutS * 1000) return;
    this.#faults.push({
      rank: rank.rank,
      exit: null,
      reason: `hung: no sign of life for ${this.plan.heartbeatTimeoutS} s (launch.heartbeat_timeout_s)`,
      next: null,
    });
    this.#end();
  }

  #askToStop(): void {
    if (this.#state !== 'running' || this.#faults.length > 0) return;
    this.#state = 'stopping';
    this.#stopped = true;
    if (this.plan.askToStop !== undefined) this.plan.askToStop(this.#ranks);
    else for (const { child } of this.#ranks) child.signal('SIGTERM');
    if (this.plan.stopWithinS !== undefined) this.#endWithin(this.plan.stopWithinS);
  }

  #endWithin(seconds: number): void {
    const timer = setTimeout(() => this.#end(), seconds * 1000);
    this.#disposals.push(() => clearTimeout(timer));
  }

  async #endAll(): Promise<void> {
    const live = this.#ranks.filter(({ child }) => child.isAlive);
    if (live.length === 0) return;
    for (const worker of live) {
      this.plan.beforeEnd?.(worker);
      worker.signal('SIGTERM');
      worker.signal('SIGCONT');
    }
    const patience = new AbortController();
    const gone = Promise.all(live.map(({ child }) => child.ended));
    const late = delay(this.#graceS * 1000, 'late', { signal: patience.signal }).catch(() => 'gone');
    if ((await Promise.race([gone, late])) === 'late') for (const { child } of live) child.signal('SIGKILL');
    patience.abort();
    await gone;
  }

  /**
   * The fault that caused the others: a hung rank, else one that ran out of memory, else a killed one, else the first
   * to end.
   */
  #failure(): RunFailed {
    const fault =
      this.#faults.find(({ exit }) => exit === null) ??
      this.#faults.find(({ next }) => next !== null) ??
      this.#faults.find(({ exit }) => exit?.signal !== null) ??
      this.#faults[0];
    return new RunFailed({
      run: this.plan.run,
      rank: fault.rank,
      processes: this.plan.ranks.length,
      exitCode: fault.exit?.code ?? null,
      signal: fault.exit?.signal ?? null,
      reason: fault.reason,
      advice: fault.next,
      lastLines: [...(this.#ranks[fault.rank]?.child.tail ?? [])],
    });
  }
}
