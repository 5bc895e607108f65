/** A vLLM server that starts with a run, is restarted during it, and ends with it, including its process group. */
import { existsSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { Deadline, systemClock } from '../../core/clock.js';
import { CheckpointError, must } from '../../core/errors.js';
import { VllmClient, RULES_ARGUMENT } from '../../train/policies/vllm/client.js';
import type { RemoteSampling } from '../../train/policies/vllm/remote_sampling.js';
import { SERVED_RANKS } from '../../recipes/shared/tokens/rules.js';
import type { PixelLimits } from '../../models/images/processor.js';
import { EVERY_FRAME } from '../../train/policies/vllm/images.js';
import { RULES_PROCESSOR } from '../../train/policies/vllm/sampler.js';
import { holdsAdapter } from '../../models/adapters/files.js';
import { ORDER_VARIABLE, PCI_ORDER } from '../machine/devices.js';
import type { Guardian } from '../processes/guardian.js';
import { freePort, MASTER_ADDRESS } from '../processes/supervise.js';
import { ManagedServer, type ServerReporter, type ServerSpecification, type ServerUser } from './managed.js';
import { writeFileAtomic } from '../../core/files.js';

export const DEFAULT_COMMAND = ['vllm', 'serve'] as const;
const WHERE = 'rollout.engine.serve';
export const HOW_TO_INSTALL =
  'Install vLLM 0.32 or later (pip install vllm; 0.10.2 is enough for an adapter on text) where this program finds it, name it in rollout.engine.serve.command, or name a server that runs in rollout.engine.base_url.';

/** Seconds to wait beyond the limit for the start. That limit ends the server first. */
const MARGIN_S = 60;

export interface VllmServerOptions {
  readonly sampled: RemoteSampling;
  /** GPUs that the server sees. Null for all that this process sees. */
  readonly devices: readonly number[] | null;
  /** The folder of the model. */
  readonly model: string;
  /** File for its output. */
  readonly log: string;
  readonly guardian: Guardian;
  readonly user: ServerUser;
  readonly say: ServerReporter;
}

/**
 * Returns when the model is loaded. Raises EndpointError when the server does not start, ConfigError when the program
 * does not exist.
 */
export async function startVllm(options: VllmServerOptions): Promise<ManagedServer> {
  const { guardian, user, say, log } = options;
  const spec = specification(options, await freePort());
  user.notice(`starting vLLM; its log is ${log}`);
  return ManagedServer.start(spec, { guardian, user, say });
}

function specification({ sampled, devices, model, log, user }: VllmServerOptions, port: number): ServerSpecification {
  const { start_timeout_s: startTimeoutS } = must(sampled.engine.serve, WHERE);
  return {
    name: 'vLLM',
    where: WHERE,
    next: `Its log is ${log}.`,
    readiness: {
      kind: 'probed',
      port,
      probe: (url, token, over) => untilReady(url, token, { user, over, startTimeoutS }),
    },
    command: (at) => vllmCommand(sampled, model, at),
    environment: (token) => vllmEnvironment({ sampled, devices, log }, token),
    noProgram: { where: `${WHERE}.command`, next: HOW_TO_INSTALL },
    startTimeoutS,
    // Time to free its GPU memory before it is killed.
    graceS: 15,
    shownLines: 8,
    log,
  };
}

async function untilReady(
  url: string,
  token: string,
  { user, over, startTimeoutS }: { user: ServerUser; over: AbortSignal; startTimeoutS: number },
): Promise<void> {
  // The time limit of the start is shorter, and its error explains more.
  const deadline = new Deadline(systemClock, 1000 * (startTimeoutS + MARGIN_S), over);
  const client = new VllmClient({
    url,
    apiKey: token,
    concurrency: 1,
    timeoutMs: 10_000,
    onWaiting: (_found, waitedS) => user.notice(`vLLM is loading (${waitedS} s)`),
  });
  try {
    await client.ready(deadline);
  } finally {
    deadline.dispose();
    await client.close();
  }
}

/** The whole command line. The run's flags come before the user's own, which win. */
export function vllmCommand(
  { engine, rank, adaptsVision, pixelLimits: seen, blocks, contextSize }: RemoteSampling,
  model: string,
  port: number,
): string[] {
  const { command, devices, gpu_memory_utilization, flags } = must(engine.serve, WHERE);
  return [
    ...(command ?? DEFAULT_COMMAND),
    model,
    ...['--host', MASTER_ADDRESS, '--port', String(port)],
    ...(rank === null ? ['--middleware', GUARD] : adapterFlags(rank)),
    // Without it, vLLM ignores adapters outside the decoder.
    ...(adaptsVision ? ['--enable-tower-connector-lora'] : []),
    ...(rank === null || seen !== null || blocks ? ['--enable-scale-out'] : []),
    // With asynchronous scheduling, a logits processor does not have the latest token.
    ...(blocks ? ['--logits-processors', RULES_PROCESSOR, '--no-async-scheduling'] : []),
    ...(seen === null ? [] : seeingFlags(seen)),
    ...['--logprobs-mode', 'processed_logprobs', '--generation-config', 'vllm'],
    ...['--max-model-len', String(contextSize), '--gpu-memory-utilization', String(gpu_memory_utilization)],
    ...(devices !== null && devices.length > 1 ? ['--tensor-parallel-size', String(devices.length)] : []),
    ...flags,
  ];
}

function adapterFlags(rank: number): string[] {
  const served = must(
    SERVED_RANKS.find((one) => one >= rank),
    `a --max-lora-rank for ${rank}`,
  );
  return ['--enable-lora', '--max-lora-rank', String(served)];
}

/** Makes vLLM see images at the policy's size: it resizes nothing within these limits and skips no video frame. */
function seeingFlags({ min_pixels, max_pixels }: PixelLimits): string[] {
  const size = { shortest_edge: min_pixels, longest_edge: max_pixels };
  return ['--mm-processor-kwargs', JSON.stringify({ size }), '--media-io-kwargs', EVERY_FRAME];
}

/** Passes the key in the environment, because any user can read arguments. */
function vllmEnvironment(
  { sampled, devices, log }: Pick<VllmServerOptions, 'sampled' | 'devices' | 'log'>,
  token: string,
): Readonly<Record<string, string>> {
  const { rank, blocks } = sampled;
  return {
    VLLM_API_KEY: token,
    ...(rank === null ? { VLLM_SERVER_DEV_MODE: '1' } : { VLLM_ALLOW_RUNTIME_LORA_UPDATING: 'True' }),
    // The V2 model runner has a different interface for logits processors.
    ...(blocks ? { VLLM_USE_V2_MODEL_RUNNER: '0' } : {}),
    ...(rank === null || blocks ? { PYTHONPATH: withModules(join(dirname(log), 'vllm_python')) } : {}),
    ...(devices === null ? {} : { [ORDER_VARIABLE]: PCI_ORDER, CUDA_VISIBLE_DEVICES: devices.join(',') }),
  };
}

/** Writes our Python modules and returns the PYTHONPATH that contains them. */
function withModules(folder: string): string {
  writeModules(folder);
  const others = process.env['PYTHONPATH'] ?? '';
  return others === '' ? folder : `${folder}${delimiter}${others}`;
}

/** Raises CheckpointError for a folder that vLLM cannot load. */
export function checkServable(folder: string): void {
  const holds = (name: string): boolean => existsSync(join(folder, name));
  const adapter = holdsAdapter(folder);
  if (!adapter && (holds('model.safetensors') || holds('model.safetensors.index.json'))) return;
  throw new CheckpointError(
    adapter
      ? 'vLLM cannot serve this model: it is an adapter, over which the run trains another one'
      : 'vLLM cannot serve this model: there are no model.safetensors',
    {
      where: folder,
      next: 'Name a whole model in the Hugging Face layout in policy.model, or set rollout.engine to null.',
    },
  );
}

/** The name of the middleware, for `--middleware`. */
export const GUARD = 'editrl_guard.Guard';

/**
 * Writes two Python modules into a folder. The caller adds the folder to PYTHONPATH. Raises RunError when the disk
 * refuses.
 * vLLM checks its key only at some routes, and not at the routes of its development mode that replace weights. The
 * first module checks the key everywhere except at /health, so that other users of the machine cannot replace weights.
 * The second module restricts answers to the rules in a request.
 */
export function writeModules(folder: string): void {
  writeFileAtomic(join(folder, 'editrl_guard.py'), GUARD_CODE);
  writeFileAtomic(join(folder, 'editrl_rules.py'), RULES_CODE);
}

const GUARD_CODE = `"""Asks for the key of VLLM_API_KEY at every route but /health."""
import os
import secrets


class Guard:
    def __init__(self, app):
        self.app = app
        self.expected = ("Bearer " + os.environ["VLLM_API_KEY"]).encode()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan" or scope.get("path") == "/health":
            return await self.app(scope, receive, send)
        given = dict(scope.get("headers") or []).get(b"authorization", b"")
        if secrets.compare_digest(given, self.expected):
            return await self.app(scope, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"error": "Unauthorized"}'})
`;

const RULES_CODE = `"""Keeps answers to the rules of image blocks that come with a request as extra_args["${RULES_ARGUMENT}"]."""
from vllm.v1.sample.logits_processor import LogitsProcessor, process_dict_updates

NAME = "${RULES_ARGUMENT}"


class Answer:
    def __init__(self, rules, output):
        self.output = output
        self.read = 0
        self.opening = rules["opening"]
        self.at = 0 if self.opening is None else -1
        self.first, self.end = rules["second"]
        self.before, self.after = rules["before"], rules["after"]
        self.block = [token for token, times in rules["block"] for _ in range(times)]

    def restrict(self, row):
        for token in self.output[self.read :]:
            if self.at >= 0 or token == self.opening:
                self.at += 1
        self.read = len(self.output)
        if 0 <= self.at < len(self.block):
            token = self.block[self.at]
            if token is None:
                row[: self.first] = float("-inf")
                row[self.end :] = float("-inf")
            else:
                kept = row[token].clone()
                row[:] = float("-inf")
                row[token] = kept
        else:
            row[self.first :] = float("-inf")
            excluded = self.before if self.at < 0 else self.after
            if excluded:
                row[excluded] = float("-inf")


class Rules(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.answers = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        process_dict_updates(self.answers, batch_update, self.begin)

    @staticmethod
    def begin(params, _prompt, output):
        rules = (params.extra_args or {}).get(NAME)
        return None if rules is None else Answer(rules, output)

    def apply(self, logits):
        for index, answer in self.answers.items():
            answer.restrict(logits[index])
        return logits
`;
