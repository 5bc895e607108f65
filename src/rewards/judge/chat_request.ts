/** Queries as bodies of `/v1/chat/completions`, and the hash of a query. */
import type {
  ChatCompletionCreateParamsNonStreaming,
  ChatCompletionMessageParam,
} from 'openai/resources/chat/completions';
import { sha256 } from '../../core/images/image.js';
import type { JudgeMessage, JudgeQuery } from './judge.js';
import { keptFields, vllmForm, type RequestForm } from './dialect.js';

/** Sampling of a first request, in addition to its temperature. All of it is sent, because vLLM fills gaps from the checkpoint's own defaults. */
const ALL_TOKENS = -1;
const repetitionPenalty = 1;
const firstSeed = 42;
/** At temperature 0, another seed alone would give the same unusable reply again. */
const askAgainTemperature = 0.3;

/** Fields of vLLM that the OpenAI schema does not contain. */
interface VllmFields {
  readonly top_k: number;
  readonly repetition_penalty: number;
}

export type ChatRequest = ChatCompletionCreateParamsNonStreaming & Partial<VllmFields>;

/** The differences of a request from the first one for its query. */
export interface Variation {
  /** Number of earlier unusable replies, except those that were too long. It varies seed and temperature. */
  readonly sample: number;
  /** Multiplies the token limit: the reply was cut off before its scores. */
  readonly room: number;
  /** Leaves the reply's format out: the judge filled its reply with white space, which a JSON grammar allows. */
  readonly formless: boolean;
}

export const firstRequest: Variation = { sample: 0, room: 1, formless: false };

/** The request for a query. */
export async function toChatRequest(
  query: Omit<JudgeQuery, 'key' | 'parse'>,
  model: string,
  form: RequestForm = vllmForm,
  { sample, room, formless }: Variation = firstRequest,
): Promise<ChatRequest> {
  const { format, topLogprobs } = query;
  const fields: VllmFields & Omit<ChatRequest, 'model' | 'messages'> = {
    n: 1,
    ...sampling(query, sample),
    ...(topLogprobs === undefined ? {} : { logprobs: true, top_logprobs: topLogprobs }),
    ...(format === null || formless ? {} : { response_format: { type: 'json_schema', json_schema: { ...format } } }),
  };
  return {
    model,
    messages: await Promise.all(query.messages.map(toMessage)),
    ...keptFields(fields, form),
    [form.leaveOut.includes('max_completion_tokens') ? 'max_tokens' : 'max_completion_tokens']: Math.floor(
      room * query.maxCompletionTokens,
    ),
  };
}

/** SHA-256 over everything in a first request: model, sampling, texts, pixels, reply format. */
export function hashRequest(query: JudgeQuery, model: string, form: RequestForm = vllmForm): string {
  const messages = query.messages.map(({ role, parts }) => ({
    role,
    parts: parts.map((part) => (typeof part === 'string' ? { text: part } : { png: part.id })),
  }));
  const { format, topLogprobs, maxCompletionTokens } = query;
  const sent = keptFields(sampling(query, 0), form);
  const body = { ...sent, max_completion_tokens: maxCompletionTokens };
  const sentFormat = form.leaveOut.includes('response_format') ? null : format;
  return sha256(JSON.stringify({ model, messages, sampling: body, format: sentFormat, topLogprobs }));
}

/** SHA-256 over a query without the content of its images and without the model: texts, the images' places, reply format. */
export function hashPrompt({ messages, format, topLogprobs }: JudgeQuery): string {
  const texts = messages.map(({ role, parts }) => ({
    role,
    parts: parts.map((part) => (typeof part === 'string' ? part : null)),
  }));
  return sha256(JSON.stringify({ messages: texts, format, topLogprobs }));
}

function sampling(query: Pick<JudgeQuery, 'temperature' | 'topP' | 'topK' | 'pass'>, sample: number) {
  const { topP = 1, topK = ALL_TOKENS, pass = { index: 0, of: 1 } } = query;
  const temperature = sample === 0 ? query.temperature : Math.max(query.temperature, askAgainTemperature);
  // A pass that is asked again must not repeat the reply of another pass.
  const seed = firstSeed + pass.index + sample * pass.of;
  return { temperature, top_p: topP, top_k: topK, repetition_penalty: repetitionPenalty, seed };
}

async function toMessage(message: JudgeMessage): Promise<ChatCompletionMessageParam> {
  if (message.role === 'system') {
    // A system message has text alone, and older servers accept it as a plain string only.
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
