/** The other processes of an attack. */
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { InternalError } from '../../src/core/errors.js';

/** A process that prints lines of JSON and ends when its standard input is closed. */
export interface Helper {
  readonly pid: number;
  /** The first line that it printed. */
  readonly ready: unknown;
  say(line: string): void;
  nextLine(): Promise<unknown>;
  close(): Promise<void>;
}

/** Starts a program that prints a line when it is ready, and ends when its standard input is closed. */
export async function startHelper(file: string, args: readonly string[]): Promise<Helper> {
  const child = spawn(process.execPath, [file, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  // A process that died is noticed by its missing output.
  child.stdin.on('error', () => undefined);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const nextLine = async (): Promise<unknown> => {
    const line = await lines.next();
    if (line.done === true) throw new InternalError(`${file} ended with code ${child.exitCode}`);
    return JSON.parse(line.value);
  };
  const ready = await nextLine();
  return {
    pid: child.pid ?? 0,
    ready,
    say: (line) => void child.stdin.write(`${line}\n`),
    nextLine,
    close: async () => {
      child.stdin.end();
      await ended;
    },
  };
}

/** Processor seconds that a process has used, all threads (Linux: fields 14 and 15 of /proc/PID/stat, in hundredths). */
export function cpuSecondsOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}
