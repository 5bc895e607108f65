/** All pairs: mistakes that the fast tests once did not notice. A change that moves or edits a quoted source line has to update its pair. */
import type { Pair } from '../pair.js';
import { learningPairs } from './learning.js';
import { readingPairs } from './reading.js';
import { runPairs } from './runs.js';
import { servingPairs } from './serving.js';

export const pairs: readonly Pair[] = [...learningPairs, ...readingPairs, ...runPairs, ...servingPairs];
