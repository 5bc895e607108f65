/** `episodes/NNNNNN.jsonl`: one line per episode of an iteration. */
import { existsSync } from 'node:fs';
import { writeFileAtomic } from '../core/files.js';
import { encodeLine, readLines } from './journal.js';
import type { RunPaths } from './paths.js';

/** Writes all episodes of an iteration at once; the file is there whole or not at all. */
export function writeEpisodes(paths: RunPaths, iteration: number, episodes: readonly object[]): void {
  const text = episodes.map((episode) => `${encodeLine({ iteration, ...episode }).line}\n`).join('');
  writeFileAtomic(paths.episodes(iteration), text);
}

/** Reads the episodes of an iteration; null when they were not recorded. */
export function readEpisodes(paths: RunPaths, iteration: number): Record<string, unknown>[] | null {
  const path = paths.episodes(iteration);
  return existsSync(path) ? readLines(path) : null;
}
