/** A server that samples in place of the policy's own engine. */
import { z } from 'zod';
import { count, httpAddress, operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';

const address = httpAddress('http://127.0.0.1:8000');

const serve = section(
  'A vLLM that is started with the run and ended with it; null where one runs already.',
  z.strictObject({
    command: operation(
      'The program that serves, and the arguments before the model; null means vllm serve.',
      z.array(z.string()).min(1).nullable().default(null),
    ),
    devices: operation(
      'GPU indices that it may use, which the run leaves to it; null means one that the run may use and does not, else the first of its own, which they share.',
      z.array(count).min(1).nullable().default(null),
    ),
    gpu_memory_utilization: operation(
      "The share of a GPU's memory that it takes (EARL's flat form: vllm_gpu_memory_utilization).",
      z.number().gt(0).max(1).default(0.9),
    ),
    flags: operation(
      "Further flags of vLLM's, as they are: ['--dtype=bfloat16'].",
      z.array(z.string().min(1)).default([]),
    ),
    start_timeout_s: operation('Seconds within which it has to have loaded the model.', positive.default(1800)),
  }),
);

export const samplingEngine = section(
  "What samples answers; null means the policy's own engine.",
  z.strictObject({
    type: result(
      "The engine: 'vllm', a server that is given the adapter of every iteration, or, with policy.lora null, all weights.",
      z.enum(['vllm']),
    ),
    base_url: operation(
      'Where it runs: http://HOST:PORT, with or without /v1; null where `serve` starts one.',
      address.nullable().default(null),
    ),
    serve: serve.nullable().default(null),
    api_key_env: operation(
      'The environment variable with the key that the server at base_url asks for.',
      z.string().min(1).default('VLLM_API_KEY'),
    ),
    adapter_dir: operation(
      "The folder that adapters, or all weights, are written to, which the server has to see; null means the run's own.",
      z.string().min(1).nullable().default(null),
    ),
    server_adapter_dir: operation(
      'What that folder is called where the server runs; null means the same.',
      z.string().min(1).nullable().default(null),
    ),
    concurrency: operation('Answers under way at once, over all processes.', positiveInteger.default(256)),
    timeout_s: operation('Seconds that one answer may take.', positive.default(600)),
    max_wait_s: operation(
      'Seconds that a server which is away is waited for; then the run checkpoints and ends with exit code 3.',
      positive.default(1800),
    ),
  }),
);
export type SamplingEngine = z.output<typeof samplingEngine>;
export type ServeSettings = NonNullable<SamplingEngine['serve']>;
