import { expect, it } from 'vitest';
import { redactorOfRun } from '../../../src/run/track/shared.js';

it('hides what variables hold that are named as keys, by their name or by a setting', () => {
  const settings = {
    launch: { env: { OTHER_SECRET: 'second-secret', CUDA: 'not-a-secret' } },
    reward: { terms: [{ api_key_env: 'ODD' }] },
  };
  const env = { HF_TOKEN: 'first-secret', ODD: 'third-secret', HOME: '/home/somebody', MY_KEY: 'abc' };
  const redact = redactorOfRun(settings, env, 'fourth-secret', null);
  expect(redact('first-secret second-secret third-secret fourth-secret')).toBe('[key] [key] [key] [key]');
  // Too short for a key, or none.
  expect(redact('abc not-a-secret /home/somebody')).toBe('abc not-a-secret /home/somebody');
});
