/** Checks whether a run can continue from a checkpoint: weights and optimizer state are finite, and counters are whole numbers. */
import { basename } from 'node:path';
import { CheckpointError } from '../core/errors.js';
import { notFiniteIn } from '../core/finite.js';
import { readPlainText } from '../core/plain_file.js';

/** The training state besides the weights; `train/trainer_state.ts` writes it. */
export const TRAINER_FILE = 'trainer.json';

const COUNTERS = ['iteration', 'optimizer_steps', 'flat_validations', 'validated_iteration'];

/**
 * What is wrong with the contents of a checkpoint's file, as a sentence. A manifest shows that the file is the one that was written; this checks that
 * what was written is usable. A file that cannot be parsed is left to its reader, which knows what it should hold. Raises what the system says of a
 * file that cannot be read.
 */
export function unsoundness(path: string): string | null {
  const problem = path.endsWith('.safetensors')
    ? tensorProblem(path)
    : basename(path) === TRAINER_FILE
      ? counterProblem(path)
      : null;
  return problem === null ? null : `${path}: ${problem}`;
}

function tensorProblem(path: string): string | null {
  try {
    return notFiniteIn(path);
  } catch (error) {
    if (error instanceof CheckpointError) return null;
    throw error;
  }
}

function counterProblem(path: string): string | null {
  let state: unknown;
  try {
    state = JSON.parse(readPlainText(path) ?? '');
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
  for (const name of COUNTERS) {
    const found = (Object(state) as Record<string, unknown>)[name];
    if (found !== undefined && !(Number.isSafeInteger(found) && (found as number) >= 0)) {
      return `${name} is ${JSON.stringify(found)}, a whole number from 0 is needed`;
    }
  }
  const wild = infiniteNumber(state, '');
  return wild === null ? null : `${wild} is not a finite number`;
}

/** The path of the first number that is too large for a float: JSON has no NaN, but `1e999` reads as infinite. */
function infiniteNumber(value: unknown, path: string): string | null {
  if (typeof value === 'number') return Number.isFinite(value) ? null : path;
  if (typeof value !== 'object' || value === null) return null;
  for (const [key, inner] of Object.entries(value)) {
    const found = infiniteNumber(inner, path === '' ? key : `${path}.${key}`);
    if (found !== null) return found;
  }
  return null;
}
