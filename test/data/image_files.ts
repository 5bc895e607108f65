/** Pictures for tests, of one colour each, and files of edits. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { encodePlainPng } from '../../src/core/images/png.js';

export type Colour = readonly [number, number, number];

export function plain(width: number, height: number, colour: Colour): Uint8Array {
  const data = Uint8Array.from({ length: width * height * 3 }, (_, i) => colour[i % 3]);
  return encodePlainPng({ width, height, data });
}

/** Writes files into a folder, by their names. */
export function writeFiles(folder: string, files: Readonly<Record<string, Uint8Array | string>>): void {
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), content);
  }
}

export function jsonLines(lines: readonly unknown[]): string {
  return lines.map((line) => JSON.stringify(line)).join('\n');
}
