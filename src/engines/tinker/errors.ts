/** Describes what is wrong with a Tinker server or its answers, and what to do about it. */
import { EndpointError, type ErrorDetails } from '../../core/errors.js';
import { RUN_AGAIN } from '../../balance/remote.js';
import { jsonOf } from '../vllm/wire.js';

/** A reply that is no answer. */
export interface FailedReply {
  /** The path of the operation, without `/api/v1`. */
  readonly operation: string;
  readonly status: number;
  readonly said: string;
}

interface Problem {
  readonly is: (refused: FailedReply) => boolean;
  readonly found: string;
  readonly next: string;
}

const creates = ({ operation }: FailedReply): boolean => /^\/create_(model|sampling_session)$/.test(operation);

/** What to do where a server makes other tokens of pictures. */
export const PICTURE_SIZES =
  'Let policy.tokenizer be the model that the server has, and policy.pixels lie within the sizes that its preprocessor_config.json allows (min_pixels and max_pixels), so that the server does not resize again.';

/** The first one that applies is reported. */
const PROBLEMS = {
  wrong_key: {
    is: ({ status }) => status === 401 || status === 403,
    found: 'the server refuses the API key',
    next: 'Export the key of this server (TINKER_API_KEY unless another variable is named), then run the same command again.',
  },
  no_adapter_left: {
    is: ({ said }) => /maximum number of lora adapters/i.test(said),
    found: 'the server has no room for another adapter',
    next: 'End runs that use the server, wait until their sessions expire (5 minutes), or start it with a larger max_lora_adapters.',
  },
  refused_rank: {
    is: (refused) => creates(refused) && /\brank\b/i.test(refused.said),
    found: 'the server refuses the rank of the adapter',
    next: 'Choose a rank that it allows, or start it with a larger max_lora_rank.',
  },
  wrong_base_model: {
    is: (refused) => creates(refused) && /base.?model|unsupported model|not (a )?supported/i.test(refused.said),
    found: 'the server does not serve this base model',
    next: 'Name the model exactly as the server was started with (get_server_capabilities lists what it serves).',
  },
  other_version: {
    is: ({ status, said }) =>
      status === 405 || status === 415 || (status === 404 && /^(not found|page not found)?\.?$/i.test(said)),
    found: 'the server speaks another version of the Tinker API',
    next: 'Check the address (without /api/v1), and that the server is SkyRL 0.3 or later or another one with this route.',
  },
  session_expired: {
    is: ({ status, said }) => status === 404 && /\bsession\b/i.test(said) && !/sampling/i.test(said),
    found: 'the session has expired',
    next: RUN_AGAIN,
  },
  picture_tokens: {
    is: ({ status, said }) => status < 500 && /expected_tokens/i.test(said),
    found: 'the server makes another number of tokens of a picture than this program',
    next: PICTURE_SIZES,
  },
  no_pictures: {
    is: ({ said }) =>
      /\b(image|vision|multi-?modal)/i.test(said) &&
      /not (be )?support|unsupported|not accept|text[- ]only|only \S*text/i.test(said),
    found: 'the server does not carry pictures',
    next: 'Train at a server that does (SkyRL in mode fsdp, with trainer and sampler on the same GPUs) with a model that sees, or set policy.trainer to {type: onnx}.',
  },
  checkpoint_taken: {
    is: ({ status, said }) => status === 409 && /already exists/i.test(said),
    found: 'there is a checkpoint with this name, with other weights',
    next: 'Delete it, or give the run another name.',
  },
  checkpoint_gone: {
    is: ({ status, said }) => (status === 404 || status === 410) && /checkpoint|weights/i.test(said),
    found: 'the checkpoint is gone from the server',
    next: 'Resume from another checkpoint, or check that the server was started with the same --checkpoints-base.',
  },
  model_gone: {
    is: ({ status, said }) =>
      (status === 404 || status === 410 || status === 400) && /(model|sampl).*not (found|loaded)|lost/i.test(said),
    found: 'the server has lost the model',
    next: RUN_AGAIN,
  },
  refused: {
    is: () => true,
    found: 'the server refuses the request',
    next: 'Look for the reason in the log of the server.',
  },
} as const satisfies Readonly<Record<string, Problem>>;
export type ProblemKind = keyof typeof PROBLEMS;

/** A server that does not do what it is asked to. */
export class TinkerError extends EndpointError {
  constructor(
    readonly kind: ProblemKind | 'failed',
    message: string,
    details: ErrorDetails,
  ) {
    super(message, details);
  }
}

/** An answer with a number that cannot be used. */
export class AnswerError extends EndpointError {
  /**
   * @param field the name of what was answered, such as `logprobs`.
   * @param index which number of it; null where it is as a whole not what was asked for.
   */
  constructor(
    readonly field: string,
    readonly index: number | null,
    readonly value: number | null,
    message: string,
    details: ErrorDetails,
  ) {
    super(message, details);
  }
}

/** An answer with more or fewer numbers than its sequence has tokens. */
export class LengthError extends AnswerError {
  /** @param what whose answer it is, such as `datum 3`. */
  constructor(
    field: string,
    readonly found: number,
    readonly wanted: number,
    what: string,
    details: ErrorDetails,
  ) {
    super(field, null, null, `${what} has ${wanted} tokens, and its result ${found} log-probabilities`, details);
  }
}

/** The error of a reply that is no answer. */
export function replyError(refused: FailedReply, where: string): TinkerError {
  const kinds = Object.keys(PROBLEMS) as ProblemKind[];
  const kind = kinds.find((each) => PROBLEMS[each].is(refused)) ?? 'refused';
  const { found, next } = PROBLEMS[kind];
  const { operation, status, said } = refused;
  // A failed operation is reported by a reply with status 200.
  const told = status === 200 ? said : `status ${status}: ${said}`;
  return new TinkerError(kind, `${operation}: ${found}: ${told}`, { where, next });
}

/** The text of a server's error: `{detail}` of the framework (a text or a list), `{error, message}`, or any text. */
export function errorText(body: string): string {
  const value = jsonOf(body) as Partial<Record<'detail' | 'message' | 'error', unknown>> | null | undefined;
  const said = value?.detail ?? value?.message ?? value?.error;
  return textOf(said, body).trim().slice(0, 500);
}

function textOf(said: unknown, body: string): string {
  if (typeof said === 'string') return said;
  if (Array.isArray(said)) return (said as unknown[]).map(issue).join('; ');
  if (typeof said === 'object' && said !== null && 'message' in said) return String(said.message);
  return body;
}

function issue(each: unknown): string {
  const { loc, msg } = (each ?? {}) as { readonly loc?: unknown; readonly msg?: unknown };
  return Array.isArray(loc) && typeof msg === 'string' ? `${loc.join('.')}: ${msg}` : JSON.stringify(each);
}
