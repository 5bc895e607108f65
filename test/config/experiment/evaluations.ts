/** Counting evaluations, for tests that put this in the place of config/jsonnet.ts. */
import type * as jsonnet from '../../../src/config/jsonnet.js';

export const evaluations = { count: 0 };

/** The module, with an `evaluateSnippet` that counts. */
export async function counted(original: () => Promise<typeof jsonnet>): Promise<typeof jsonnet> {
  const real = await original();
  return {
    ...real,
    evaluateSnippet: (request) => {
      evaluations.count += 1;
      return real.evaluateSnippet(request);
    },
  };
}
