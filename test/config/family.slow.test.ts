import { describe } from 'vitest';
import { family, loadsAtBothSizes, quick } from './family_cases.js';

describe('the shipped family', () => {
  loadsAtBothSizes(family.filter((name) => !quick.includes(name)));
});
