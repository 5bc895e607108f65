/** The options of a gateway. Light to import: the command line reads the schema. */
import { z } from 'zod';
import { modelAliasSchema } from '../judge/endpoints.js';

/** A run's name, as `x-run-name` contains it. */
export const runNamePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$/;

const options = z.strictObject({
  upstreams: z
    .array(z.string())
    .min(1, 'give at least one upstream')
    .describe('base URLs of equal judges; /v1 is added to a bare host'),
  model: z
    .string()
    .min(1)
    .nullable()
    .default(null)
    .describe('the model that an upstream has to serve to be ready; default: the first in its list'),
  modelAlias: modelAliasSchema.describe(
    'another name that an upstream may report for --model, as a proxy or a deployment does; may be repeated; without a value, any name is accepted. The model need then not be in the list of the upstream',
  ),
  host: z.string().min(1).default('127.0.0.1').describe('address to listen on'),
  port: z.int().min(0).max(65_535).default(4878).describe('port to listen on; 0 takes a free port'),
  maxConcurrency: z
    .int()
    .min(1)
    .max(4096)
    .default(64)
    .describe(
      'highest number of requests in flight at one upstream; stay below the limit of the server (for vLLM: its --max-num-seqs and the size of its image cache)',
    ),
  quota: z
    .int()
    .min(1)
    .nullable()
    .default(null)
    .describe('highest number of requests in flight per run; default: no limit per run'),
  maxQueued: z
    .int()
    .min(1)
    .default(2048)
    .describe('highest number of waiting requests per run; further requests get 429'),
  maxWaiting: z
    .int()
    .min(1)
    .default(8192)
    .describe(
      'highest number of waiting requests of all runs; beyond it, the last request of the run with the most waiting requests gets 429',
    ),
  maxBodyMb: z.number().positive().max(1024).default(16).describe('largest request body, in megabytes'),
  maxHeldMb: z
    .number()
    .positive()
    .default(256)
    .describe(
      'memory for request bodies, in megabytes, including bodies that still arrive; further requests get 429. One address may use half of it for bodies that arrive, and one body a quarter',
    ),
  maxImages: z.int().min(1).default(64).describe('highest number of images in a request'),
  maxImageMegapixels: z.number().positive().default(16).describe('largest image in a request, in megapixels'),
  timeoutS: z
    .number()
    .positive()
    .max(86_400)
    .default(100)
    .describe(
      'time limit of one request to an upstream, in seconds; keep it below the time limit of the clients, so that the gateway notices a hung upstream first',
    ),
  drainTimeoutS: z
    .number()
    .positive()
    .max(86_400)
    .default(120)
    .describe('seconds that open requests have to finish after a request to stop'),
  breakerFailures: z
    .int()
    .min(1)
    .default(5)
    .describe('failures in a row after which an upstream gets no requests until it passes its readiness check again'),
});

/** Checks combinations of `options` fields, too. */
export const gatewayOptionsSchema = options.refine(({ model, modelAlias }) => model !== null || modelAlias === false, {
  path: ['modelAlias'],
  message: 'other names need a model: name it with --model',
});

export type GatewayOptions = z.output<typeof gatewayOptionsSchema>;
