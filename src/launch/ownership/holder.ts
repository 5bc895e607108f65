/**
 * Decides whether the process named in a run's lock may belong to the run. A lock is a text file that anybody with access to the folder can write: a
 * number in it is no reason to end a process.
 */
import { readFileSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import type { HeldBy } from '../../run/lock.js';
import type { RunPaths } from '../../run/paths.js';
import { LAUNCH_VARIABLE } from '../processes/guardian.js';

/** Environment variable of a run's workers: the run's folder, with links resolved. */
export const RUN_VARIABLE = 'EDITRL_RUN';

/** The verbs whose own process holds a lock: a sweep that of its experiment, the others that of a run while they restart it. */
const HOLDING_VERBS = ['run', 'resume', 'sweep', 'cell'];

/** What is known of a process of this machine. */
export interface ProcessTraits {
  /** The user's number. */
  readonly uid: number;
  /** When it started, as recorded in a lock; null if it has ended. */
  readonly start: string | null;
  /** `NAME=value` entries it was started with; null if it is another user's and may not be read. */
  readonly environment: readonly string[] | null;
  readonly command: readonly string[];
}

/** Queries to the system; tests replace them. */
export interface HolderWorld {
  /** The asking user's number; null if the system has no such numbers. */
  readonly uid: number | null;
  /** The owner of a file; null if it is gone. */
  ownerOf(path: string): number | null;
  /** 'unknown' on systems without /proc. */
  traitsOf(pid: number): ProcessTraits | 'unknown';
}

export function realHolderWorld(processStart: (pid: number) => string | null): HolderWorld {
  return {
    uid: process.getuid?.() ?? null,
    ownerOf: (path) => statSync(path, { throwIfNoEntry: false })?.uid ?? null,
    traitsOf: (pid) => {
      const proc = statSync(`/proc/${pid}`, { throwIfNoEntry: false });
      if (proc === undefined) return 'unknown';
      return {
        uid: proc.uid,
        start: processStart(pid),
        environment: entriesOf(`/proc/${pid}/environ`),
        command: entriesOf(`/proc/${pid}/cmdline`) ?? [],
      };
    },
  };
}

function entriesOf(path: string): string[] | null {
  try {
    return readFileSync(path, 'utf8').split('\0');
  } catch {
    return null;
  }
}

/** The mark in the environment of a run's workers. The run's folder need not exist yet. */
export function runMark(paths: RunPaths): Readonly<Record<string, string>> {
  return { [RUN_VARIABLE]: withoutLinks(resolve(paths.dir)) };
}

function withoutLinks(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return dirname(path) === path ? path : join(withoutLinks(dirname(path)), basename(path));
  }
}

/**
 * Why the process named in a lock is not taken for the run's; null if it is. Required: the lock's file belongs to the process's user or to the asking
 * user; the process started when the lock says; and it has the run's mark in its environment, or is a command of this program that holds locks.
 * Workers of versions without that mark are recognized by their launcher's. Without /proc, only the file's owner can be checked.
 */
export function whyNotHolder(paths: RunPaths, held: HeldBy, world: HolderWorld): string | null {
  const owner = world.ownerOf(paths.lock);
  const traits = world.traitsOf(held.pid);
  const ours = owner !== null && owner === world.uid;
  if (traits === 'unknown') {
    return ours || world.uid === null
      ? null
      : `its lock belongs to user ${owner}, and this system does not say whose the process is`;
  }
  if (!ours && owner !== traits.uid) return `its lock belongs to user ${owner}, and the process to user ${traits.uid}`;
  if (traits.start === null || traits.start !== held.process_start) {
    return `its lock says that the process started at ${held.process_start ?? 'no known time'}, which it did not`;
  }
  return mark(paths, traits);
}

function mark(paths: RunPaths, { environment, command }: ProcessTraits): string | null {
  if (isHoldingCommand(command)) return null;
  if (environment === null) return 'the environment of the process cannot be read';
  const valueOf = (name: string): string | null =>
    environment.find((entry) => entry.startsWith(`${name}=`))?.slice(name.length + 1) ?? null;
  const marked = valueOf(RUN_VARIABLE);
  if (marked === null) {
    return valueOf(LAUNCH_VARIABLE) === null
      ? `the process has no ${RUN_VARIABLE} in its environment, as workers have`
      : null;
  }
  return marked === runMark(paths)[RUN_VARIABLE] ? null : `the process works on another run, ${marked}`;
}

/** `node …/cli/main.js run …`, or the name under which the package is installed. */
function isHoldingCommand(command: readonly string[]): boolean {
  const program = command.findIndex((word) => /(^|\/)(editrl|cli\/main\.js)$/.test(word));
  return program >= 0 && command.slice(program + 1).some((word) => HOLDING_VERBS.includes(word));
}
