/** What trains a policy, apart from `engine`, which also computes the frozen models around it. */
import { z } from 'zod';
import { count, httpAddress, operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';

const address = httpAddress('http://127.0.0.1:8000');

/** A record without a trainer is of a run that the onnx engine trained. */
const onnxTrainer = z.strictObject({
  type: result("The trainer: 'onnx', the engine of this program.", z.literal('onnx')),
});

const serve = section(
  'A training server that is started with the run and ended with it, and keeps what it saves in the folder of the run; null where one runs already.',
  z.strictObject({
    command: operation(
      'The program that serves, and its first arguments, before --model, --rank, --port, --dir and flags; null means scripts/serve_skyrl, which is part of this program and starts SkyRL.',
      z.array(z.string()).min(1).nullable().default(null),
    ),
    mode: operation(
      "SkyRL's backend, where command is null: 'jax', 'fsdp' or 'megatron'; null means fsdp on GPUs and jax on the CPU.",
      z.enum(['jax', 'fsdp', 'megatron']).nullable().default(null),
    ),
    python: operation(
      'The folder of the Python environment that has SkyRL and uv, where command is null; null means the one that is active.',
      z.string().min(1).nullable().default(null),
    ),
    devices: operation(
      'GPU indices that it may use, which the run leaves to it; null means the GPU that the run has, which they share.',
      z.array(count).min(1).nullable().default(null),
    ),
    flags: operation(
      "Further arguments, as they are: ['--tensor-parallel', '4'].",
      z.array(z.string().min(1)).default([]),
    ),
    start_timeout_s: operation('Seconds within which it has to answer.', positive.default(1800)),
  }),
);
export type ServeTrainerSettings = z.output<typeof serve>;

const tinkerTrainer = z.strictObject({
  type: result("The trainer: 'tinker', a server that speaks the Tinker training API.", z.literal('tinker')),
  base_url: operation(
    'Where it runs: http://HOST:PORT; null where `serve` starts one, else what the environment variable TINKER_BASE_URL says.',
    address.nullable().default(null),
  ),
  serve: serve.nullable().default(null),
  base_model: result(
    'The model that the server trains adapters over, by the name that it has there.',
    z.string().min(1),
  ),
  lora: section(
    'The adapter that is trained; the server decides which layers have one.',
    z
      .strictObject({
        rank: result('Its rank.', positiveInteger.default(32)),
        seed: result("Of its random start; null means the run's seed.", count.nullable().default(null)),
      })
      .prefault({}),
  ),
  reduction: result(
    "What the server makes of the losses of tokens: 'sum' (the hosted service, SkyRL on fsdp and megatron), or 'mean_per_datum', the mean over the answers of the means over their tokens (SkyRL on jax). Null means what the probe before the run finds; a server that does something else than is set is refused. What is sent is scaled so that the gradient is the same.",
    z.enum(['sum', 'mean_per_datum']).nullable().default(null),
  ),
  download_adapter: operation(
    'Whether checkpoints hold a copy of the adapter, where the server gives it, so that the run can be exported, used here and started from.',
    z.boolean().default(true),
  ),
  dialect: operation(
    "How requests are written: 'proto', 'json', or 'auto', which finds out.",
    z.enum(['auto', 'proto', 'json']).default('auto'),
  ),
  api_key_env: operation(
    'The environment variable with the key that the server asks for; one that `serve` starts finds a key of its own there.',
    z.string().min(1).default('TINKER_API_KEY'),
  ),
  concurrency: operation('Prompts that are answered at once.', positiveInteger.default(64)),
  timeout_s: operation('Seconds that one request may take, without what the server computes.', positive.default(60)),
  max_wait_s: operation(
    'Seconds that a server which is away, or an operation, is waited for; then the run ends with exit code 3.',
    positive.default(1800),
  ),
});
export type TinkerSettings = z.output<typeof tinkerTrainer>;

const trainers = [onnxTrainer, tinkerTrainer] as const;

/** The trainer of a policy whose recipe can be trained in this process only. */
export const trainerHere = section(
  'What trains the policy.',
  z.discriminatedUnion('type', [onnxTrainer]).prefault({ type: 'onnx' }),
);

/** The trainer of a policy that a server can train, too. */
export const trainerAnywhere = section(
  'What trains the policy.',
  z.discriminatedUnion('type', trainers).prefault({ type: 'onnx' }),
);
export type TrainerSettings = z.output<typeof trainerAnywhere>;

/** Every trainer, as configs name them. */
export const trainerTypes = trainers.map(({ shape }) => shape.type.value);
