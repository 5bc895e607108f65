/** The small Emu3 that test/fixture_scripts/emu3.py makes, and what Python makes of it. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CodeGrid } from '../../../src/data/types.js';

export const emu3Folder = (...path: string[]): string => join(import.meta.dirname, 'emu3', ...path);

/** Ids as transformers' tokenizer gives them, and as Emu3's own does. */
interface BothIds {
  readonly ids: readonly number[];
  readonly original: readonly number[];
}

interface Picture {
  readonly height: number;
  readonly width: number;
  readonly pixels: readonly number[];
  readonly codes: readonly (readonly number[])[];
}

interface Expected {
  readonly texts: readonly (BothIds & { readonly text: string; readonly decoded: string })[];
  readonly prompts: readonly (BothIds & {
    readonly codes: readonly (readonly number[])[];
    readonly instruction: string;
    readonly prefill: string;
  })[];
  readonly answer: BothIds & { readonly codes: readonly (readonly number[])[]; readonly rationale: string };
  readonly mapped: readonly (readonly number[])[];
  readonly logits: readonly number[];
  readonly encoded: Picture;
  readonly decoded: Picture;
}

export const expectedOfEmu3 = JSON.parse(readFileSync(emu3Folder('expected.json'), 'utf8')) as Expected;

export function gridOf(codes: readonly (readonly number[])[]): CodeGrid {
  return { height: codes.length, width: codes[0].length, codes: Int32Array.from(codes.flat()) };
}
