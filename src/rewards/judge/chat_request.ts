/** Queries as bodies of `/v1/chat/completions`, and the hash that names what a body asks. */
import type {
  ChatCompletionCreateParamsNonStreaming,
  ChatCompletionMessageParam,
} from 'openai/resources/chat/completions';
import { sha256 } from '../../core/image.js';
import type { JudgeMessage, JudgeQuery } from './judge.js';
import type { JudgeImage } from './images.js';

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

/**
 * Which sampling fields a server takes. `vllm`: all, as most servers that run open models do. `openai`: those of OpenAI's own schema
 * only, without the seed, which its newer models refuse; that API has no checkpoint defaults that would fill the gaps.
 */
export type Dialect = 'vllm' | 'openai';

/** Hosts of OpenAI's own service and of its resale by Azure. */
const openAiHost = /(?:^|\.)(?:api\.openai\.com|openai\.azure\.com)$/;

/** The dialect of the servers at these base URLs: `openai` where any of them is OpenAI's own. */
export function dialectOf(endpoints: readonly string[]): Dialect {
  return endpoints.some((url) => URL.canParse(url) && openAiHost.test(new URL(url).hostname)) ? 'openai' : 'vllm';
}

/** How a request differs from the first one for its query. */
export interface Variation {
  /** Sends images with half their sides: the request was longer than the model's context. */
  readonly shrunk?: boolean;
  /** Allows twice the tokens: the reply was cut off before its scores. */
  readonly longer?: boolean;
}

/** The request for a query; `asked` counts the unusable replies that it got before, and varies seed and temperature. */
export async function toChatRequest(
  query: Omit<JudgeQuery, 'key' | 'parse'>,
  model: string,
  asked: number,
  dialect: Dialect = 'vllm',
  { shrunk = false, longer = false }: Variation = {},
): Promise<ChatRequest> {
  const { format, topLogprobs } = query;
  return {
    model,
    messages: await Promise.all(query.messages.map((message) => toMessage(message, shrunk))),
    n: 1,
    ...sampling(query, asked, dialect),
    max_completion_tokens: longer ? 2 * query.maxCompletionTokens : query.maxCompletionTokens,
    ...(topLogprobs === undefined ? {} : { logprobs: true, top_logprobs: topLogprobs }),
    ...(format === null ? {} : { response_format: { type: 'json_schema', json_schema: { ...format } } }),
  };
}

/** SHA-256 over everything that determines the first request: model, sampling, texts, pixels, reply format. */
export function hashRequest(query: JudgeQuery, model: string, dialect: Dialect = 'vllm'): string {
  const messages = query.messages.map(({ role, parts }) => ({
    role,
    parts: parts.map((part) => (typeof part === 'string' ? { text: part } : { png: part.digest })),
  }));
  const { format, topLogprobs, maxCompletionTokens } = query;
  const asked = { ...sampling(query, 0, dialect), max_completion_tokens: maxCompletionTokens };
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

function sampling(query: Pick<JudgeQuery, 'temperature'>, asked: number, dialect: Dialect) {
  const temperature = asked === 0 ? query.temperature : Math.max(query.temperature, askAgainTemperature);
  if (dialect === 'openai') return { temperature, top_p: topP };
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
