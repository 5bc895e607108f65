/** Queries as bodies of `/v1/chat/completions`, and the hash that names what a body asks. */
import type {
  ChatCompletionCreateParamsNonStreaming,
  ChatCompletionMessageParam,
} from 'openai/resources/chat/completions';
import { sha256 } from '../core/image.js';
import type { JudgeMessage, JudgeQuery } from './judge.js';

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

export type ChatRequest = ChatCompletionCreateParamsNonStreaming & VllmFields;

/** The request for a query; `asked` counts the unusable replies that it got before, and varies seed and temperature. */
export async function toChatRequest(query: JudgeQuery, model: string, asked: number): Promise<ChatRequest> {
  return {
    model,
    messages: await Promise.all(query.messages.map(toMessage)),
    ...sampling(query, asked),
    ...(query.format === null ? {} : { response_format: { type: 'json_schema', json_schema: { ...query.format } } }),
  };
}

/** SHA-256 over everything that determines the first request: model, sampling, texts, pixels, reply format. */
export function hashRequest(query: JudgeQuery, model: string): string {
  const messages = query.messages.map(({ role, parts }) => ({
    role,
    parts: parts.map((part) => (typeof part === 'string' ? { text: part } : { png: part.digest })),
  }));
  return sha256(JSON.stringify({ model, messages, sampling: sampling(query, 0), format: query.format }));
}

function sampling(query: JudgeQuery, asked: number) {
  return {
    temperature: asked === 0 ? query.temperature : Math.max(query.temperature, askAgainTemperature),
    top_p: topP,
    top_k: topK,
    repetition_penalty: repetitionPenalty,
    seed: firstSeed + asked,
    max_completion_tokens: query.maxCompletionTokens,
  };
}

async function toMessage(message: JudgeMessage): Promise<ChatCompletionMessageParam> {
  if (message.role === 'system') {
    // A system message carries text alone, and older servers take it as a plain string only.
    return { role: 'system', content: message.parts.filter((part) => typeof part === 'string').join('\n') };
  }
  const content = await Promise.all(
    message.parts.map(async (part) =>
      typeof part === 'string'
        ? ({ type: 'text', text: part } as const)
        : ({ type: 'image_url', image_url: { url: await part.dataUrl() } } as const),
    ),
  );
  return { role: 'user', content };
}
