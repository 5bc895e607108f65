/** A reward from reward servers: heavy terms run outside the trainer, and several runs share them. */
import { z } from 'zod';
import { ConfigError } from '../../core/errors.js';
import { nonNegative, operation, positive, positiveInteger, result } from '../../core/schema/mark.js';
import { termKind } from './term.js';

const address = z.string().min(1);

/** Weights are written by hand: their sum may be off in its last digits. */
const weights = z
  .record(z.string(), z.number().positive())
  .refine((shares) => Math.abs(Object.values(shares).reduce((sum, share) => sum + share, 0) - 1) < 1e-6, {
    error: 'the weights have to add up to 1',
  })
  .nullable()
  .default(null);

export const remote = termKind({
  name: 'remote',
  description:
    'The reward of one or several equal reward servers (editrl serve rewards): their weighted outcome, or another weighting of their terms. If a server leaves an item unscored because its judge is away, another server gets it.',
  fields: {
    endpoint: operation(
      'Address of a reward server, or a list of equal ones.',
      z.union([address, z.array(address).min(1)]),
      { allowed: 'a URL such as http://127.0.0.1:4876, or a list of them' },
    ),
    terms: result(
      "Shares of the servers' terms by name, such as {ocr_confidence: 0.6, align_quality: 0.4}. null means the servers' own weighting.",
      weights,
    ),
    token_env: operation(
      'Environment variable with the token of the servers. A server on the same machine may need none.',
      z.string().min(1).default('EDITRL_REWARD_TOKEN'),
    ),
    concurrency: operation(
      'Highest number of items in flight, over all servers and all processes of the run.',
      positiveInteger.default(64),
    ),
    timeout_s: operation('Time limit of one request to one server, in seconds.', positive.default(300)),
    item_timeout_s: operation('Time limit of one item over all its requests, in seconds.', positive.default(900)),
    wait_s: operation('How long the start waits for the first ready server, in seconds.', nonNegative.default(60)),
  },
  reads: 'either',
  needs: { judge: false, server: true, truth: false, source: false },
  readsQuoted: ({ terms }) => terms !== null && Object.hasOwn(terms, 'ocr'),
  async create(settings, { store, limits, records }) {
    const { RewardPool } = await import('../server/client/pool.js');
    const offline = records?.offline === true;
    const token = offline ? undefined : process.env[settings.token_env];
    if (token === '') {
      throw new ConfigError(`${settings.token_env} is empty`, {
        where: 'token_env',
        next: `Export the servers' token, or unset it if they need none.`,
      });
    }
    const pool = new RewardPool({
      servers: [settings.endpoint].flat(),
      weights: settings.terms,
      concurrency: Math.max(1, Math.floor(settings.concurrency / (limits?.processes ?? 1))),
      attemptTimeoutMs: settings.timeout_s * 1000,
      itemTimeoutMs: settings.item_timeout_s * 1000,
      ...(token === undefined ? {} : { token }),
      ...(limits === undefined ? {} : { maxAttempts: limits.maxAttempts }),
      store,
      ...(records === undefined ? {} : { records }),
    });
    if (offline) return pool;
    try {
      await pool.ready(settings.wait_s * 1000);
    } catch (error) {
      await pool.close();
      throw error;
    }
    return pool;
  },
});
