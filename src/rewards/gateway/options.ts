/** What a gateway can be told. Import-light: the command line reads the schema. */
import { z } from 'zod';
import { modelAliasSchema } from '../judge/endpoints.js';

/** A run's name, as `x-run-name` carries it. */
export const runNamePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$/;

const options = z.strictObject({
  upstreams: z
    .array(z.string())
    .min(1, 'at least one upstream is needed')
    .describe('base URLs of equal judges; /v1 is added to a bare host'),
  model: z
    .string()
    .min(1)
    .nullable()
    .default(null)
    .describe(
      'the model that an upstream has to serve before it counts as ready; the first that it lists where it is left out',
    ),
  modelAlias: modelAliasSchema.describe(
    'another name by which an upstream may answer when it is asked for --model, as a proxy or a deployment does; may be repeated, and any where no name follows. The model need then not be listed',
  ),
  host: z.string().min(1).default('127.0.0.1').describe('address to listen on'),
  port: z.int().min(0).max(65_535).default(4878).describe('port to listen on; 0 takes a free one'),
  maxConcurrency: z
    .int()
    .min(1)
    .max(4096)
    .default(64)
    .describe(
      'requests under way at one upstream, at most; keep it below what is known to bring the server down (for vLLM: its --max-num-seqs, and what its image cache holds)',
    ),
  quota: z
    .int()
    .min(1)
    .nullable()
    .default(null)
    .describe('requests under way of one run, at most; as many as there is room for where it is left out'),
  maxQueued: z.int().min(1).default(2048).describe('requests of one run that wait; further ones are answered with 429'),
  maxWaiting: z
    .int()
    .min(1)
    .default(8192)
    .describe(
      'waiting requests of all runs; beyond it, the last request of the run with the most waiting requests is answered with 429',
    ),
  maxBodyMb: z.number().positive().max(1024).default(16).describe('largest request body, in megabytes'),
  maxHeldMb: z
    .number()
    .positive()
    .default(256)
    .describe(
      'bodies held in memory at once, those that still arrive included, in megabytes; further requests are answered with 429, half of it may be on its way from one address, and one body may have a quarter',
    ),
  maxImages: z.int().min(1).default(64).describe('images in a request, at most'),
  maxImageMegapixels: z.number().positive().default(16).describe('largest image in a request, in megapixels'),
  timeoutS: z
    .number()
    .positive()
    .max(86_400)
    .default(100)
    .describe(
      'seconds that one request to an upstream may take; stay below the time limit of the clients, so that a hung upstream is noticed here first',
    ),
  drainTimeoutS: z
    .number()
    .positive()
    .max(86_400)
    .default(120)
    .describe('seconds that requests under way may go on when the gateway is told to stop'),
  breakerFailures: z
    .int()
    .min(1)
    .default(5)
    .describe('failures in a row after which an upstream is left alone until it passes its readiness check again'),
});

/** As `options`, whose fields may contradict each other. */
export const gatewayOptionsSchema = options.refine(({ model, modelAlias }) => model !== null || modelAlias === false, {
  path: ['modelAlias'],
  message: 'other names are those of one model: name it with --model',
});

export type GatewayOptions = z.output<typeof gatewayOptionsSchema>;
