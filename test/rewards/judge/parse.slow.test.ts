import { describe } from 'vitest';
import { givesScoresOrAReason } from './any_text.js';

describe('any text at all', () => {
  givesScoresOrAReason(20_000, 100);
});
