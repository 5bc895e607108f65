/** Trainers of a policy. `engine` computes the frozen models around it. */
import { z } from 'zod';
import { count, httpAddress, operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';

const address = httpAddress('http://127.0.0.1:8000');

const onnxTrainer = z.strictObject({
  type: result("The trainer: 'onnx' is the built-in engine.", z.literal('onnx')),
});

const serve = section(
  'A training server that starts and ends with the run and saves into its folder. null if one is running already.',
  z.strictObject({
    command: operation(
      'The program and its first arguments, before --model, --rank, --port, --dir and flags. null means the included scripts/serve_skyrl, which starts SkyRL.',
      z.array(z.string()).min(1).nullable().default(null),
    ),
    mode: operation(
      "The SkyRL backend if command is null: 'jax', 'fsdp' or 'megatron'. null means fsdp on GPUs and jax on the CPU.",
      z.enum(['jax', 'fsdp', 'megatron']).nullable().default(null),
    ),
    python: operation(
      'The folder of a Python environment with SkyRL and uv, if command is null. null means the active one.',
      z.string().min(1).nullable().default(null),
    ),
    devices: operation(
      'GPU indices reserved for it. null means the GPU of the run, which they share.',
      z.array(count).min(1).nullable().default(null),
    ),
    flags: operation(
      "Further arguments, passed unchanged: ['--tensor-parallel', '4'].",
      z.array(z.string().min(1)).default([]),
    ),
    start_timeout_s: operation('Seconds until it must answer.', positive.default(1800)),
  }),
);
export type ServeTrainerSettings = z.output<typeof serve>;

const tinkerTrainer = z.strictObject({
  type: result("The trainer: 'tinker' is a server of the Tinker training API.", z.literal('tinker')),
  base_url: operation(
    'Its address: http://HOST:PORT. null means the server of `serve`, else the environment variable TINKER_BASE_URL.',
    address.nullable().default(null),
  ),
  serve: serve.nullable().default(null),
  base_model: result("The server's name of the base model.", z.string().min(1)),
  lora: section(
    'The adapter that trains. The server chooses its layers.',
    z
      .strictObject({
        rank: result('Its rank.', positiveInteger.default(32)),
        seed: result("Seed of its initialization. null means the run's seed.", count.nullable().default(null)),
      })
      .prefault({}),
  ),
  reduction: result(
    "The server's reduction of token losses: 'sum' (the hosted service, SkyRL on fsdp and megatron), or 'mean_per_datum', the mean over answers of the means over their tokens (SkyRL on jax). null means the result of the probe before the run. A server with another reduction is rejected. Losses are scaled so that the gradient is the same.",
    z.enum(['sum', 'mean_per_datum']).nullable().default(null),
  ),
  download_adapter: operation(
    'Whether checkpoints contain a copy of the adapter, if the server provides it. Exports and other runs need it.',
    z.boolean().default(true),
  ),
  dialect: operation(
    "Format of requests: 'proto', 'json', or 'auto', which detects it.",
    z.enum(['auto', 'proto', 'json']).default('auto'),
  ),
  api_key_env: operation(
    'The environment variable with the API key of the server. A server that `serve` starts gets its own key there.',
    z.string().min(1).default('TINKER_API_KEY'),
  ),
  concurrency: operation('Concurrent prompts.', positiveInteger.default(64)),
  timeout_s: operation(
    'Timeout of one request in seconds, without the computation on the server.',
    positive.default(60),
  ),
  max_wait_s: operation(
    'Seconds to wait for an operation or for a server that is down. Then the run ends with exit code 3.',
    positive.default(1800),
  ),
});
export type TinkerSettings = z.output<typeof tinkerTrainer>;

const trainers = [onnxTrainer, tinkerTrainer] as const;

/** The trainer of a policy that only this process can train. */
export const trainerHere = section(
  'The trainer of the policy.',
  z.discriminatedUnion('type', [onnxTrainer]).prefault({ type: 'onnx' }),
);

/** The trainer of a policy that a server can train too. */
export const trainerAnywhere = section(
  'The trainer of the policy.',
  z.discriminatedUnion('type', trainers).prefault({ type: 'onnx' }),
);
export type TrainerSettings = z.output<typeof trainerAnywhere>;

/** Every trainer, as configs name them. */
export const trainerTypes = trainers.map(({ shape }) => shape.type.value);
