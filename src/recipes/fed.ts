/**
 * What decoding steps are fed from this process's memory where they compute on CUDA: onnxruntime-node takes weights and the key and value caches as arrays of
 * the process there, and copies them at every token. On WebGPU both lie on the device.
 */
import { EngineError } from '../core/errors.js';

/** What computes, without `auto`. */
export type StepProvider = 'cpu' | 'webgpu' | 'cuda';

/** Bytes of one decoding step. */
export interface FedPerStep {
  readonly caches: number;
  readonly weights: number;
  /** Answers that decode together. */
  readonly answers: number;
}

/**
 * The most bytes that a step may be fed. A PCIe 4.0 slot of 16 lanes moves 32 GB a second at best, so such a step takes a quarter of a second however fast
 * the GPU is, and an answer of 1000 tokens more than four minutes.
 */
export const MOST_FED = 8 * 2 ** 30;

/** Fewer bytes are not worth a word. */
const SAID = 2 ** 26;

/** What makes caches smaller, which is of no use where weights alone are too much. */
const LESS_CACHED =
  'decode fewer answers at once (rollout.chunk_groups), make them shorter (rollout.max_response_tokens), lower policy.model_context_size, which prompts are taken to fill, ';

/** Whether a step is fed no more than `MOST_FED`, or computes where nothing is copied at every token. */
function isFedAllowed(fed: FedPerStep | null, provider: StepProvider): boolean {
  return fed === null || provider !== 'cuda' || fed.caches + fed.weights <= MOST_FED;
}

/** Raises EngineError for sampling on CUDA whose steps would be fed more than `MOST_FED`. `fed` is null where nothing is sampled, or nothing known. */
export function refuseFed(fed: FedPerStep | null, provider: StepProvider): void {
  if (fed === null || isFedAllowed(fed, provider)) return;
  const { caches, weights, answers } = fed;
  const [found, most] = [caches, MOST_FED].map(gibibytes);
  const besides = weights < SAID ? '' : ` and ${gibibytes(weights)} of weights`;
  throw new EngineError(
    `sampling on ${provider}: found ${found} of key and value caches of ${answers} answers${besides}, which are copied to the device at every token; allowed: ${most} together`,
    {
      where: 'policy.engine.provider',
      next: `Let vLLM sample (rollout.engine), ${weights > MOST_FED ? '' : LESS_CACHED}or set policy.engine.provider to 'cpu'.`,
    },
  );
}

function gibibytes(bytes: number): string {
  return `${(bytes / 2 ** 30).toFixed(1)} GiB`;
}
