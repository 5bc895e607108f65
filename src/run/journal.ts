/** Journals: files of JSON lines. */
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { RunError } from '../core/errors.js';
import { type LogDisk, LogWriter, rewriteLines, scanLines } from '../core/log.js';
import { parseIterationName, type RunPaths } from './paths.js';

/**
 * Encodes a value as one JSON line without a newline. JSON would hide non-finite numbers as null, so they become the strings "NaN", "Infinity" and
 * "-Infinity". Typed arrays become arrays.
 */
export function encodeLine(value: unknown): { line: string; nonFinite: number } {
  let nonFinite = 0;
  const line = JSON.stringify(value, (_key, item: unknown) => {
    if (typeof item === 'number' && !Number.isFinite(item)) {
      nonFinite++;
      return String(item);
    }
    return ArrayBuffer.isView(item) && !(item instanceof DataView) ? Array.from(item as Uint8Array) : item;
  });
  return { line, nonFinite };
}

/** Decodes a number, including the strings of `encodeLine` for non-finite ones. Null for any other value. */
export function decodeNumber(value: unknown): number | null {
  if (typeof value === 'number') return value;
  return value === 'NaN' || value === 'Infinity' || value === '-Infinity' ? Number(value) : null;
}

/** A JSON-lines file open for appending. Opening removes an incomplete last line after a crash. */
export class Journal extends LogWriter {
  constructor(path: string, disk?: LogDisk) {
    super(path, isJson, disk);
  }

  /** Appends a value as one line. Returns the line's position in bytes and its number of non-finite numbers. */
  append(value: unknown): { offset: number; length: number; nonFinite: number } {
    const { line, nonFinite } = encodeLine(value);
    return { ...this.appendLine(line), nonFinite };
  }
}

/** Every complete line of a file as a JSON object. Raises RunError for an invalid line. */
export function readLines(path: string): Record<string, unknown>[] {
  const out: Record<string, unknown>[] = [];
  scanLines(path, (line) => {
    out.push(parseLine(line, path, out.length + 1));
  });
  return out;
}

/** Parses one line. Raises RunError unless it is a JSON object. */
export function parseLine(line: string, path: string, number: number): Record<string, unknown> {
  try {
    const value = JSON.parse(line) as unknown;
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch (cause) {
    throw notALine(path, number, cause);
  }
  throw notALine(path, number);
}

/** Drops the lines of a journal with an `iteration` after the given one. Returns their number. */
export function dropLinesAfter(path: string, iteration: number): number {
  return rewriteLines(path, (line, number) => {
    const of = parseLine(line, path, number)['iteration'];
    if (typeof of !== 'number') throw notALine(path, number);
    return of > iteration ? null : line;
  });
}

/** Truncates metrics and episodes to the end of an iteration (-1: to nothing), so a resumed run can append. */
export function rewindTo(paths: RunPaths, iteration: number): void {
  if (existsSync(paths.metrics)) {
    new Journal(paths.metrics).close();
    dropLinesAfter(paths.metrics, iteration);
  }
  if (!existsSync(paths.episodesDir)) return;
  for (const name of readdirSync(paths.episodesDir)) {
    const of = parseIterationName(/^(?:validation_)?(\d+)\.jsonl$/.exec(name)?.[1] ?? '');
    if (of !== null && of > iteration) rmSync(join(paths.episodesDir, name));
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function notALine(path: string, number: number, cause?: unknown): RunError {
  return new RunError('invalid line', {
    where: `${path}:${number}`,
    next: 'Remove the line, or restore the file from a copy.',
    cause,
  });
}
