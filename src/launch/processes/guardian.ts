/**
 * The guardian: a small shell process in its own session that briefly outlives the launcher.
 * It reads from a pipe that closes when the launcher ends for any reason. It then sends SIGTERM and SIGKILL to every
 * registered process group, and to every process whose environment has the launch's mark.
 * The mark finds processes that left their group, such as the workers of torchrun. It also finds a child that was being
 * started when the launcher died: the pipe closes only after the child has its own environment.
 */
import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { processStart } from '../../run/claim/lock.js';

/** Environment variable of every process of an attempt: `<launcher pid>:<its start time>:<random>.<number>`. */
export const LAUNCH_VARIABLE = 'EDITRL_LAUNCH';

/**
 * $1: regular expression for the beginning of the environment entry. $2: tenths of a second between SIGTERM and
 * SIGKILL.
 */
const SCRIPT = `
trap '' INT TERM HUP QUIT
groups=
while read -r word id; do
  case $word in
    add) groups="$groups $id" ;;
    del) kept=; for g in $groups; do [ "$g" = "$id" ] || kept="$kept $g"; done; groups=$kept ;;
  esac
done
marked() { grep -lsz -e "$1" /proc/[0-9]*/environ; }
strike() {
  some=1
  for g in $groups; do kill -s "$2" -- "-$g" 2>/dev/null && some=0; done
  for p in $(marked "$1"); do p=\${p#/proc/}; kill -s "$2" -- "\${p%/environ}" 2>/dev/null && some=0; done
  return $some
}
strike "$1" TERM || exit 0
round=0
while [ $round -lt "$2" ]; do sleep 0.1; strike "$1" 0 || exit 0; round=$((round + 1)); done
round=0
while [ $round -lt 30 ]; do strike "$1" KILL || exit 0; sleep 0.1; round=$((round + 1)); done
`;

const GRACE_TENTHS = 20;

/** Guards the processes of one launcher, from the first `watch` until `close` or the end of this process. */
export class Guardian {
  readonly #launch = `${process.pid}:${processStart(process.pid) ?? ''}:${randomUUID()}`;
  #attempts = 0;
  readonly #groups = new Set<number>();
  readonly #onExit = (): void => this.#killGroups();
  #process: ChildProcessByStdio<Writable, null, null> | null = null;

  /** Starts the guardian unless it is running. Call it before starting a child, so that no child is ever unguarded. */
  watch(): void {
    if (this.#process !== null) return;
    const args = ['-c', SCRIPT, 'editrl-guardian', `^${LAUNCH_VARIABLE}=${this.#launch}[.]`, String(GRACE_TENTHS)];
    // Without the mark of a launch that this launcher may itself belong to: the guardian must outlive that launch, too.
    const env = { PATH: process.env['PATH'] ?? '/usr/bin:/bin' };
    const child = spawn('/bin/sh', args, { stdio: ['pipe', 'ignore', 'ignore'], detached: true, cwd: '/', env });
    this.#process = child;
    child.unref();
    (child.stdin as unknown as { unref(): void }).unref();
    // A guardian that was killed is replaced, and the new one gets the same groups.
    const replace = (): void => {
      if (this.#process !== child) return;
      this.#process = null;
      if (this.#groups.size > 0) this.watch();
    };
    child.stdin.on('error', replace);
    child.once('error', replace).once('exit', replace);
    for (const group of this.#groups) this.#say('add', group);
    process.on('exit', this.#onExit);
  }

  /** The value of `LAUNCH_VARIABLE` for one attempt. */
  markAttempt(): string {
    return `${this.#launch}.${this.#attempts++}`;
  }

  /** Registers a process group that a child of this launcher leads. */
  add(group: number): void {
    this.#groups.add(group);
    this.#say('add', group);
  }

  /** Drops a process group that has ended, because its id may be reused. */
  remove(group: number): void {
    if (this.#groups.delete(group)) this.#say('del', group);
  }

  /** Lets the guardian end. It still ends every process with the mark. */
  close(): void {
    const child = this.#process;
    this.#process = null;
    process.off('exit', this.#onExit);
    child?.stdin.end();
  }

  #say(word: string, group: number): void {
    this.#process?.stdin.write(`${word} ${group}\n`);
  }

  #killGroups(): void {
    for (const group of this.#groups) signalGroup(group, 'SIGKILL');
  }
}

/** Sends a signal to a process group. Returns false if the group has no process left. */
export function signalGroup(group: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(-group, signal);
    return true;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ESRCH') return false;
    if ((cause as NodeJS.ErrnoException).code === 'EPERM') return true;
    throw cause;
  }
}

/** Whether a process of the group is running. Zombies do not count on Linux. */
export function isGroupAlive(group: number): boolean {
  if (!signalGroup(group, 0)) return false;
  return process.platform !== 'linux' || pids().some((pid) => liveGroupOf(pid) === group);
}

/** The processes with an attempt's mark in their environment. Always empty on systems other than Linux. */
export function markedProcesses(mark: string): number[] {
  const entry = `${LAUNCH_VARIABLE}=${mark}`;
  return pids().filter((pid) => environmentOf(pid)?.includes(entry) ?? false);
}

function pids(): number[] {
  if (process.platform !== 'linux') return [];
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

/** Returns null when the process is gone or belongs to another user. */
function environmentOf(pid: number): string[] | null {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0');
  } catch {
    return null;
  }
}

/** The process group of a running process. Null if it has ended. */
function liveGroupOf(pid: number): number | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const [state, , group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return state === 'Z' || state === 'X' ? null : Number(group);
  } catch {
    return null;
  }
}
