/**
 * Requests to vLLM's HTTP API and its answers, as far as a sampler needs them (`vllm/entrypoints/openai`, 0.10.2 and later; from 0.32 on
 * `vllm/entrypoints/scale_out` too).
 */
import { z } from 'zod';

/** One answer to a prompt of token ids. Every sampling value is sent, because vLLM takes missing ones from the model's generation_config.json. */
export interface CompletionRequest {
  /** The name of an adapter, or of the model itself. */
  readonly model: string;
  readonly prompt: readonly number[];
  readonly max_tokens: number;
  /** 0 takes the most probable token. */
  readonly temperature: number;
  readonly top_p: number;
  /** 0 keeps everything. */
  readonly top_k: number;
  readonly seed: number;
  /** The tokens that end the answer, which includes the one that ended it. */
  readonly stop_token_ids: readonly number[];
  /** The number of alternatives to return for each token besides the token itself. */
  readonly logprobs: number;
}

/** The fields that are the same in every request. The server's own end tokens are ignored: an answer ends with the policy's. */
export const FIXED_FIELDS = {
  n: 1,
  min_p: 0,
  repetition_penalty: 1,
  ignore_eos: true,
  skip_special_tokens: false,
  return_token_ids: true,
  return_tokens_as_token_ids: true,
  stream: false,
} as const;

/** A picture or a clip that goes with the ids of a prompt, in which one token stands for each, as a data URL. */
export interface ContentPart {
  readonly type: 'image_url' | 'video_url';
  readonly url: string;
}

/** What `/inference/v1/generate` is asked: the same as a completion, with pictures, and apart from what the server cached under other weights. */
export interface GenerateRequest extends CompletionRequest {
  readonly parts: readonly ContentPart[];
  /** Names the weights: blocks that were cached under another name are not used. */
  readonly cacheSalt: string;
  /** What our logits processor keeps to, if the server has it; null for any token. */
  readonly rules: object | null;
}

/** The name under which our logits processor finds the rules of a request. */
export const RULES_ARGUMENT = 'editrl_rules';

/** The body of a request to `/inference/v1/generate`. Text is never made of the tokens. */
export function generateBody({ model, prompt, parts, cacheSalt, rules, ...sampling }: GenerateRequest): object {
  return {
    model,
    token_ids: prompt,
    cache_salt: cacheSalt,
    return_token_ids: true,
    stream: false,
    ...(parts.length === 0 ? {} : { content_parts: parts }),
    sampling_params: {
      ...sampling,
      n: 1,
      min_p: 0,
      repetition_penalty: 1,
      ignore_eos: true,
      skip_special_tokens: false,
      detokenize: false,
      ...(rules === null ? {} : { extra_args: { [RULES_ARGUMENT]: rules } }),
    },
  };
}

export const generateReply = z.object({
  prompt_token_ids: z.array(z.int().min(0)),
  choices: z
    .array(
      z.object({
        token_ids: z.array(z.int().min(0)),
        finish_reason: z.enum(['stop', 'length']),
        logprobs: z.object({ content: z.array(z.object({ logprob: z.number() })) }),
        weight_versions: z.array(z.object({ version: z.string() })),
      }),
    )
    .length(1),
});

/** Digests of the parameters that a server computes with, by its own names for them. */
export const checksumsReply = z.object({ checksums: z.record(z.string(), z.string()) });

const choice = z.object({
  token_ids: z.array(z.int().min(0)),
  finish_reason: z.enum(['stop', 'length']),
  logprobs: z.object({
    token_logprobs: z.array(z.number()),
    top_logprobs: z.array(z.record(z.string(), z.number()).nullable()).nullish(),
  }),
});
export const completionReply = z.object({ choices: z.array(choice).length(1) });

export interface Completion {
  readonly ids: readonly number[];
  /** Log-probability of each token, in nats, as set by the server's `--logprobs-mode`. */
  readonly logProbs: readonly number[];
  /** Log-probabilities of the most probable first tokens, as many as were asked for. */
  readonly top: readonly number[];
  readonly stopped: boolean;
}

/** An answer of `/inference/v1/generate`. */
export interface Generated extends Completion {
  /** The prompt as the server read it, with as many tokens for each picture as it made of it. */
  readonly promptIds: readonly number[];
  /** The names that the weights had while it was sampled. */
  readonly versions: readonly string[];
}

export const modelsReply = z.object({
  data: z.array(
    z.object({
      id: z.string(),
      /** Null for the model itself, else the model that the adapter stands on. */
      parent: z.string().nullish(),
      max_model_len: z.number().nullish(),
    }),
  ),
});
export type ServedModel = z.output<typeof modelsReply>['data'][number];

/** The text of a server's error: `{error: {message}}`, before 0.10.1 `{message}`, `{detail}` of the framework, or any text. */
export function messageOf(body: string): string {
  const parsed = errorReply.safeParse(jsonOf(body));
  const said = parsed.success ? (parsed.data.error?.message ?? parsed.data.message ?? parsed.data.detail) : undefined;
  return (typeof said === 'string' ? said : body).trim().slice(0, 500);
}

const errorReply = z.object({
  error: z.object({ message: z.string() }).optional().catch(undefined),
  message: z.string().optional().catch(undefined),
  detail: z.unknown().optional(),
});

/** Undefined for anything that is not JSON. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
