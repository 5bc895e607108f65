/** A reward of the user's own, from a JavaScript file. docs/guide/rewards.md describes such a file. */
import { extname } from 'node:path';
import { z } from 'zod';
import { operation, positive, positiveInteger, result } from '../../core/schema/mark.js';
import { moduleName } from './module/types.js';
import { termKind } from './term.js';

export const moduleTerm = termKind({
  name: 'module',
  description: "A value from 0 to 1 from a JavaScript module of the user's own, which runs in editrl's process.",
  fields: {
    module: result(
      'Path of an ES module (.js or .mjs), relative to the config. Its metrics have the name of the file.',
      z.string().min(1),
      { file: 'module' },
    ),
    settings: result("The module's own settings.", z.record(z.string(), z.unknown()).default({}), {
      allowed: 'an object of whatever the module reads',
    }),
    concurrency: operation(
      'Highest number of items in the module at once, per process of the run.',
      positiveInteger.default(16),
    ),
    timeout_s: operation(
      'Time limit of importing the module and of each item, in seconds. A late item is unscored.',
      positive.default(60),
    ),
    start_s: operation('Time limit of its create(), in seconds.', positive.default(300)),
  },
  reads: 'either',
  needs: { judge: false, truth: false, source: false },
  nameOf: ({ module }) => moduleName(module),
  conflict: ({ module }) => {
    const extension = extname(module);
    if (extension === '.js' || extension === '.mjs') return null;
    const compile = /^\.[mc]?tsx?$/.test(extension) ? '; compile it, and name the JavaScript file' : '';
    return { field: 'module', message: `found '${module}'; allowed: an ES module, .js or .mjs${compile}` };
  },
  create: async (settings, services) => (await import('./module/term.js')).openModule(settings, services),
});
