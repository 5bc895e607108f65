import type { Problem } from './completion.js';

/** The reply to a request that was called off. */
export const calledOff: Problem = {
  kind: 'problem',
  problem: 'aborted',
  detail: 'called off',
  remedy: 'give_up',
};
