/** Handling of Ctrl-C, a closed terminal, and a closed output pipe. */
import { readFileSync } from 'node:fs';

/** The exit code after a requested stop. */
export const INTERRUPTED = 130;

/**
 * Calls `onSignal` on SIGINT, SIGTERM, and SIGHUP. A hang-up counts once, because both the shell and the kernel can send it. If the caller ignores it
 * (`nohup`), it stays ignored.
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
 * Returns one abort signal per stage. The first stop signal (see `onStopSignals`) calls `onStop` and aborts the first stage. Each further one aborts the
 * next stage. A stop signal after the last stage ends this process.
 */
export function abortOnSignals(stages: number, onStop: () => void, view: { end(): void }): AbortSignal[] {
  const stops = Array.from({ length: stages }, () => new AbortController());
  onStopSignals(() => {
    const next = stops.find(({ signal }) => !signal.aborted);
    if (next === undefined) {
      view.end();
      process.exit(INTERRUPTED);
    }
    if (next === stops[0]) onStop();
    next.abort();
  });
  return stops.map(({ signal }) => signal);
}

/** Whether a hang-up would end this process. False if the caller ignores it, or if this is unknown. */
function hangUpEnds(): boolean {
  if (process.platform !== 'linux') return false;
  const ignored = /^SigIgn:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'utf8'));
  // The lowest bit is signal 1, SIGHUP.
  return ignored !== null && Number.parseInt(ignored[1].slice(-1), 16) % 2 === 0;
}

/**
 * Keeps the program running after its output is closed (`| head`, `| tee` ended by Ctrl-C, a closed terminal). Further output is dropped. A run's own
 * logs stay complete.
 */
export function outliveReaders(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (!goneReader.has(error.code)) throw error;
    });
  }
}

const goneReader: ReadonlySet<string | undefined> = new Set(['EPIPE', 'EIO', 'ERR_STREAM_DESTROYED']);
