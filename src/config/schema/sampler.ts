/** A server that samples answers instead of the policy's own engine. */
import { z } from 'zod';
import { count, httpAddress, operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';

const address = httpAddress('http://127.0.0.1:8000');

const serve = section(
  'A vLLM that starts and ends with the run. null if one is running already.',
  z.strictObject({
    command: operation(
      'The program and its arguments before the model. null means vllm serve.',
      z.array(z.string()).min(1).nullable().default(null),
    ),
    devices: operation(
      'GPU indices reserved for it. null means a free GPU of launch.devices, else the first GPU of the run, which they share.',
      z.array(count).min(1).nullable().default(null),
    ),
    gpu_memory_utilization: operation(
      "The share of a GPU's memory that it uses (in EARL's flat form: vllm_gpu_memory_utilization).",
      z.number().gt(0).max(1).default(0.9),
    ),
    flags: operation(
      "Further vLLM flags, passed unchanged: ['--dtype=bfloat16'].",
      z.array(z.string().min(1)).default([]),
    ),
    start_timeout_s: operation('Seconds to load the model.', positive.default(1800)),
  }),
);

export const samplingEngine = section(
  "The engine that samples answers. null means the policy's own engine.",
  z.strictObject({
    type: result(
      "The engine: 'vllm' is a server that gets the adapter of every iteration or, with policy.lora null, all weights.",
      z.enum(['vllm']),
    ),
    base_url: operation(
      'Its address: http://HOST:PORT, with or without /v1. null if `serve` starts one.',
      address.nullable().default(null),
    ),
    serve: serve.nullable().default(null),
    api_key_env: operation(
      'The environment variable with the API key of the server at base_url.',
      z.string().min(1).default('VLLM_API_KEY'),
    ),
    adapter_dir: operation(
      'The folder for adapters or weights. The server must be able to read it. null means a folder of the run.',
      z.string().min(1).nullable().default(null),
    ),
    server_adapter_dir: operation(
      'The path of that folder on the machine of the server. null means the same path.',
      z.string().min(1).nullable().default(null),
    ),
    concurrency: operation('Concurrent requests, over all processes.', positiveInteger.default(256)),
    timeout_s: operation('Timeout of one answer, in seconds.', positive.default(600)),
    max_wait_s: operation(
      'Seconds to wait for a server that is down. Then the run saves a checkpoint and ends with exit code 3.',
      positive.default(1800),
    ),
  }),
);
export type SamplingEngine = z.output<typeof samplingEngine>;
export type ServeSettings = NonNullable<SamplingEngine['serve']>;
