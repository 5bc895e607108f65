/** Follows `metrics.jsonl` while it grows, however long it is: what came last, some curves, and the held-out evaluations. */
import { closeSync, fstatSync, readSync } from 'node:fs';
import { openPlain } from '../core/plain_file.js';
import { decodeNumber } from './journal.js';
import type { Metrics, MetricsLine } from './metrics.js';

/** Of a file that is there already, so much of its end is read. */
const TAIL_BYTES = 512 * 1024;
/** The first evaluation stands in the first line. */
const HEAD_BYTES = 64 * 1024;
const NEWLINE = 10;

export class MetricsTail {
  #offset = 0;
  #inode = -1;
  #rest: Buffer = Buffer.alloc(0);
  #last: MetricsLine | null = null;
  #curves = new Map<string, number[]>();
  #heldOut: MetricsLine[] = [];

  constructor(
    private readonly path: string,
    /** The metrics whose curves are kept. */
    private readonly watched: readonly string[],
  ) {}

  /** The last line; null before the first. */
  get last(): MetricsLine | null {
    return this.#last;
  }

  /** The values of a watched metric, oldest first; of a long run, its latest. */
  curve(metric: string): readonly number[] {
    return this.#curves.get(metric) ?? [];
  }

  /** The lines with held-out numbers: the first of the run, and those of the file's end. */
  get heldOut(): readonly MetricsLine[] {
    return this.#heldOut;
  }

  /** Takes up what was appended; a file that was replaced or cut is read anew. Raises RunError where it cannot be read. */
  read(): void {
    const file = openPlain(this.path);
    if (file === null) return;
    try {
      const { size, ino } = fstatSync(file);
      // What grew by more than the tail meanwhile is begun anew at its end.
      if (ino !== this.#inode || size < this.#offset || size - this.#offset > TAIL_BYTES) this.#begin(file, size, ino);
      const bytes = Buffer.concat([this.#rest, readBytes(file, this.#offset, size)]);
      this.#offset = size;
      const end = bytes.lastIndexOf(NEWLINE) + 1;
      this.#rest = bytes.subarray(end);
      for (const line of parse(bytes.subarray(0, end))) this.#take(line);
    } finally {
      closeSync(file);
    }
  }

  #begin(file: number, size: number, ino: number): void {
    this.#inode = ino;
    this.#rest = Buffer.alloc(0);
    this.#last = null;
    this.#curves = new Map();
    this.#heldOut = [];
    this.#offset = 0;
    if (size <= TAIL_BYTES) return;
    const head = readBytes(file, 0, HEAD_BYTES);
    const first = parse(head.subarray(0, head.indexOf(NEWLINE) + 1)).filter(isHeldOut);
    this.#heldOut.push(...first);
    const tail = readBytes(file, size - TAIL_BYTES, size);
    this.#offset = size - TAIL_BYTES + tail.indexOf(NEWLINE) + 1;
  }

  #take(line: MetricsLine): void {
    this.#last = line;
    if (isHeldOut(line)) this.#heldOut.push(line);
    for (const metric of this.watched) {
      const value = line.metrics[metric] as number | undefined;
      if (value === undefined) continue;
      const curve = this.#curves.get(metric);
      if (curve === undefined) this.#curves.set(metric, [value]);
      else curve.push(value);
    }
  }
}

function isHeldOut({ metrics }: MetricsLine): boolean {
  return Object.keys(metrics).some((name) => name.startsWith('validation/'));
}

function readBytes(file: number, from: number, to: number): Buffer {
  const bytes = Buffer.alloc(Math.max(0, to - from));
  return bytes.subarray(0, readSync(file, bytes, 0, bytes.length, from));
}

/** Whole lines; what a power failure left where a line was is passed over: the run repairs it when it opens the file. */
function parse(bytes: Buffer): MetricsLine[] {
  return bytes
    .toString('utf8')
    .split('\n')
    .flatMap((text): MetricsLine[] => {
      let value: unknown;
      try {
        value = JSON.parse(text);
      } catch {
        return [];
      }
      if (typeof value !== 'object' || value === null) return [];
      const { iteration, ...rest } = value as Record<string, unknown>;
      if (typeof iteration !== 'number') return [];
      const metrics: Record<string, number> = {};
      for (const [name, field] of Object.entries(rest)) {
        const number = decodeNumber(field);
        if (number !== null) metrics[name] = number;
      }
      return [{ iteration, metrics: metrics satisfies Metrics }];
    });
}
