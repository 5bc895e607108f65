/** The contact sheets of a run's held-out evaluations: the latest is with the run's other pictures, and some of the earlier ones are kept. */
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { must } from '../../core/errors.js';
import { writeFileAtomic } from '../../core/files.js';
import { readPlain } from '../../core/plain_file.js';
import { iterationName, parseIterationName, type RunPaths } from '../paths.js';
import { writeContactSheet, type ContactSheetRow } from './contact_sheet.js';

/** How many are kept, spread over the run. */
const MOST = 9;

export interface SavedSheet {
  readonly iteration: number;
  readonly path: string;
}

/** Draws the sheet of an evaluation and keeps it; `manner` is how its answers were sampled. Raises RunError when the disk refuses. */
export async function saveContactSheet(
  paths: RunPaths,
  { iteration, manner }: { readonly iteration: number; readonly manner: string },
  rows: readonly ContactSheetRow[],
): Promise<void> {
  const path = sheetPath(paths, iteration);
  await writeContactSheet(path, rows, `${paths.runName}, iteration ${iteration}: held-out answers, ${manner}`);
  writeFileAtomic(paths.contactSheet, must(readPlain(path), path));
  const kept = contactSheets(paths);
  const stay = new Set(thinOut(kept.map((sheet) => sheet.iteration)));
  for (const sheet of kept) if (!stay.has(sheet.iteration)) rmSync(sheet.path, { force: true });
}

/** The sheets that are kept, oldest first. */
export function contactSheets(paths: RunPaths): SavedSheet[] {
  if (!existsSync(paths.contactSheetsDir)) return [];
  return readdirSync(paths.contactSheetsDir)
    .flatMap((name) => {
      const iteration = parseIterationName(/^(\d+)\.png$/.exec(name)?.[1] ?? '');
      return iteration === null ? [] : [{ iteration, path: join(paths.contactSheetsDir, name) }];
    })
    .sort((a, b) => a.iteration - b.iteration);
}

/**
 * Which of a run's iterations stay: the first, the last, and in between those a gap apart, which doubles until few enough are left. `iterations`
 * ascend.
 */
export function thinOut(iterations: readonly number[], most = MOST): number[] {
  const [first, last] = [iterations[0], iterations[iterations.length - 1]];
  for (let gap = 0; ; gap = gap === 0 ? smallestGap(iterations) : 2 * gap) {
    const stay: number[] = [];
    for (const iteration of iterations) {
      const previous = stay.at(-1) ?? -Infinity;
      if (iteration === first || iteration === last || iteration - previous >= gap) stay.push(iteration);
    }
    if (stay.length <= most) return stay;
  }
}

/** The first, the middle and the last; fewer if there are fewer. */
export function startMiddleEnd(sheets: readonly SavedSheet[]): SavedSheet[] {
  const [first, last] = [sheets.at(0), sheets.at(-1)];
  if (first === undefined || last === undefined) return [];
  const middle = (first.iteration + last.iteration) / 2;
  const nearest = sheets.reduce((best, sheet) =>
    Math.abs(sheet.iteration - middle) < Math.abs(best.iteration - middle) ? sheet : best,
  );
  return [...new Set([first, nearest, last])];
}

function smallestGap(iterations: readonly number[]): number {
  return iterations.slice(1).reduce((least, iteration, at) => Math.min(least, iteration - iterations[at]), Infinity);
}

function sheetPath(paths: RunPaths, iteration: number): string {
  return join(paths.contactSheetsDir, `${iterationName(iteration)}.png`);
}
