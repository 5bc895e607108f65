/** Every pair: mistakes that the fast tier once did not notice. Whoever moves or changes the source of one brings its text up to date. */
import type { Pair } from '../pair.js';
import { learningPairs } from './learning.js';
import { readingPairs } from './reading.js';
import { runPairs } from './runs.js';
import { servingPairs } from './serving.js';

export const pairs: readonly Pair[] = [...learningPairs, ...readingPairs, ...runPairs, ...servingPairs];
