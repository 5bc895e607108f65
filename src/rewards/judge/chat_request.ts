/** Queries as bodies of `/v1/chat/completions`, and the hash that names what a body asks. */
import type {
  ChatCompletionCreateParamsNonStreaming,
  ChatCompletionMessageParam,
} from 'openai/resources/chat/completions';
import { sha256 } from '../../core/image.js';
import type { JudgeMessage, JudgeQuery } from './judge.js';
import type { JudgeImage } from './images.js';
import { keptFields, startingTraits, type Dialect, type Traits } from './traits.js';

/** Sampling of a first request besides its temperature; sent in full, because vLLM fills gaps from the checkpoint's own defaults. */
const topP = 1;
const topK = -1;
const repetitionPenalty = 1;
const firstSeed = 42;
/** At temperature 0 another seed alone would bring the same unusable reply again. */
const askAgainTemperature = 0.3;

/** Fields of vLLM that the OpenAI schema does not know. */
interface VllmFields {
  readonly top_k: number;
  readonly repetition_penalty: number;
}

export type ChatRequest = ChatCompletionCreateParamsNonStreaming & Partial<VllmFields>;

/** How a request differs from the first one for its query. */
export interface Variation {
  /** Sends images with half their sides: the request was longer than the model's context. */
  readonly shrunk?: boolean;
  /** Allows so many times the tokens: the reply was cut off before its scores. */
  readonly room?: number;
}

/** The request for a query; `asked` counts the unusable replies that it got before, but for those that only lacked room, and varies seed and temperature. */
export async function toChatRequest(
  query: Omit<JudgeQuery, 'key' | 'parse'>,
  model: string,
  asked: number,
  traits: Traits = startingTraits.vllm,
  { shrunk = false, room = 1 }: Variation = {},
): Promise<ChatRequest> {
  const { format, topLogprobs } = query;
  const fields: VllmFields & Omit<ChatRequest, 'model' | 'messages'> = {
    n: 1,
    ...sampling(query, asked),
    ...(topLogprobs === undefined ? {} : { logprobs: true, top_logprobs: topLogprobs }),
    ...(format === null ? {} : { response_format: { type: 'json_schema', json_schema: { ...format } } }),
  };
  return {
    model,
    messages: await Promise.all(query.messages.map((message) => toMessage(message, shrunk))),
    ...keptFields(fields, traits),
    [traits.tokenLimit]: Math.floor(room * query.maxCompletionTokens),
  };
}

/**
 * SHA-256 over everything that a first request is meant to say: model, sampling, texts, pixels, reply format. What a server turns out to
 * refuse of it does not count, so that an answer is found again whatever was known of the server when it was asked.
 */
export function hashRequest(query: JudgeQuery, model: string, dialect: Dialect = 'vllm'): string {
  const messages = query.messages.map(({ role, parts }) => ({
    role,
    parts: parts.map((part) => (typeof part === 'string' ? { text: part } : { png: part.digest })),
  }));
  const { format, topLogprobs, maxCompletionTokens } = query;
  const sent = keptFields(sampling(query, 0), startingTraits[dialect]);
  const asked = { ...sent, max_completion_tokens: maxCompletionTokens };
  return sha256(JSON.stringify({ model, messages, sampling: asked, format, topLogprobs }));
}

/** SHA-256 over what a query says, whatever its images show and whoever answers it: texts, the images' places, reply format. */
export function hashPrompt({ messages, format, topLogprobs }: JudgeQuery): string {
  const said = messages.map(({ role, parts }) => ({
    role,
    parts: parts.map((part) => (typeof part === 'string' ? part : null)),
  }));
  return sha256(JSON.stringify({ messages: said, format, topLogprobs }));
}

/** Whether the query shows any image that can be sent smaller. */
export function canShrink(query: JudgeQuery): boolean {
  return query.messages.some(({ parts }) => parts.some((part) => typeof part !== 'string' && part.smaller() !== null));
}

function sampling(query: Pick<JudgeQuery, 'temperature'>, asked: number) {
  const temperature = asked === 0 ? query.temperature : Math.max(query.temperature, askAgainTemperature);
  return { temperature, top_p: topP, top_k: topK, repetition_penalty: repetitionPenalty, seed: firstSeed + asked };
}

async function toMessage(message: JudgeMessage, shrunk: boolean): Promise<ChatCompletionMessageParam> {
  if (message.role === 'system') {
    // A system message carries text alone, and older servers take it as a plain string only.
    return { role: 'system', content: message.parts.filter((part) => typeof part === 'string').join('\n') };
  }
  const content = await Promise.all(
    message.parts.map(async (part) =>
      typeof part === 'string'
        ? ({ type: 'text', text: part } as const)
        : ({ type: 'image_url', image_url: { url: await (shrunk ? smallest(part) : part).dataUrl() } } as const),
    ),
  );
  return { role: 'user', content };
}

function smallest(image: JudgeImage): JudgeImage {
  return image.smaller() ?? image;
}
