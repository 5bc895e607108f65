/** What a person's side does to a program that trains: Ctrl-C, a terminal that closes, a reader that goes away. */
import { readFileSync } from 'node:fs';

/** The exit code of a program that was told to stop. */
export const INTERRUPTED = 130;

/**
 * Calls `onSignal` at SIGINT, SIGTERM, and when the terminal hangs up. A hang-up counts once, since it can come from the shell and
 * from the kernel; it is left alone where it was to be ignored (`nohup`).
 */
function onStopSignals(onSignal: () => void): void {
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  if (!hangUpEnds()) return;
  let hungUp = false;
  process.on('SIGHUP', () => {
    if (!hungUp) onSignal();
    hungUp = true;
  });
}

/**
 * As many abort signals as there are stages: the first stop signal (see `onStopSignals`) calls `told` and aborts the first, each further one aborts
 * the next, and one more than there are stages ends this process.
 */
export function abortOnSignals(stages: number, told: () => void, view: { end(): void }): AbortSignal[] {
  const stops = Array.from({ length: stages }, () => new AbortController());
  onStopSignals(() => {
    const next = stops.find(({ signal }) => !signal.aborted);
    if (next === undefined) {
      view.end();
      process.exit(INTERRUPTED);
    }
    if (next === stops[0]) told();
    next.abort();
  });
  return stops.map(({ signal }) => signal);
}

/** Whether a hang-up would end this process: false where the caller ignores it, and where that cannot be told. */
function hangUpEnds(): boolean {
  if (process.platform !== 'linux') return false;
  const ignored = /^SigIgn:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'utf8'));
  // The lowest bit is signal 1, SIGHUP.
  return ignored !== null && Number.parseInt(ignored[1].slice(-1), 16) % 2 === 0;
}

/**
 * Lets work go on when nobody reads what it prints any more (`| head`, `| tee` that Ctrl-C ended, a terminal that is gone): from then
 * on that is dropped. A run's own logs have it all.
 */
export function outliveReaders(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (!goneReader.has(error.code)) throw error;
    });
  }
}

const goneReader: ReadonlySet<string | undefined> = new Set(['EPIPE', 'EIO', 'ERR_STREAM_DESTROYED']);
