/** Every word that can occur in the tiny world's sentences, in a fixed order, so that a tokenizer can be made from it. */
import { EDIT_KINDS, EDIT_RULES, isSlot } from './edits.js';
import { cellNames, COLOURS, DEFAULT_GEOMETRY, RELATIONS, SHAPES, type Geometry } from './world.js';

/** Words of rationales that no instruction has. */
const RATIONALE_WORDS = ['at', 'becomes', 'become', 'goes', 'go', 'away', 'appears', 'moves', 'to', 'swaps', 'with'];

/** The distinct words of instructions and rationales for a grid; the same grid always gives the same order. */
export function tinyVocabulary(geometry: Geometry = DEFAULT_GEOMETRY): string[] {
  const fixed = EDIT_KINDS.flatMap((kind) => EDIT_RULES[kind].sentence.split(' ').filter((word) => !isSlot(word)));
  const words = [...fixed, ...RATIONALE_WORDS, ...COLOURS, ...SHAPES, ...RELATIONS, ...cellNames(geometry)];
  return [...new Set(words)];
}

/** The largest number of words in an instruction. */
export const MAX_INSTRUCTION_WORDS = Math.max(...EDIT_KINDS.map((kind) => EDIT_RULES[kind].sentence.split(' ').length));

/** The largest number of words in a rationale. */
export const MAX_RATIONALE_WORDS = 14;
