/**
 * Figures of comparisons with transformers and peft, which docs/reference/coverage.md shows. A test that compares a model
 * writes them into the file that EDITRL_RECORD names, docs/reference/agreement.json, so that no figure is written by hand.
 */
import { existsSync, readFileSync } from 'node:fs';
import { format, resolveConfig } from 'prettier';
import { type DecoderConfig, linearWeights } from '../../src/compute/nets/decoder/config.js';
import { writeFileAtomic } from '../../src/core/files.js';
import type { Agreement, Agreements } from '../../src/launch/agreement.js';

/** Replaces the figures of one comparison, named by its fixture. */
export async function recordAgreement(name: string, found: Agreement): Promise<void> {
  const file = process.env['EDITRL_RECORD'];
  if (file === undefined) return;
  const all = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Agreements) : {};
  const differences = Object.fromEntries(
    Object.entries(found.differences).map(([key, value]) => [key, Number(value.toPrecision(2))]),
  );
  const sorted = Object.entries({ ...all, [name]: { ...found, differences } }).sort(([a], [b]) => a.localeCompare(b));
  const json = JSON.stringify(Object.fromEntries(sorted));
  writeFileAtomic(file, await format(json, { ...(await resolveConfig(import.meta.filename)), parser: 'json' }));
}

/** The layers that `all-linear` adapts, by the last part of their names, or the last two if that is a number. */
export function linearLayers(config: DecoderConfig): string[] {
  const named = linearWeights(config).map((name) => /(\w+(?:\.\d+)?)\.weight$/.exec(name)?.[1] ?? name);
  return [...new Set(named)].filter((name) => name !== 'lm_head').sort();
}

/** The largest difference, relative to the largest value. */
export function distance(found: ArrayLike<number>, wanted: ArrayLike<number>): number {
  if (found.length !== wanted.length) throw new Error(`found ${found.length} numbers, expected ${wanted.length}`);
  let [difference, largest] = [0, 0];
  for (let i = 0; i < wanted.length; i++) {
    difference = Math.max(difference, Math.abs(found[i] - wanted[i]));
    largest = Math.max(largest, Math.abs(wanted[i]));
  }
  return difference / largest;
}
