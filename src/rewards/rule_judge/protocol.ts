/**
 * Questions and answers in the chat-completion form of OpenAI's API as vLLM serves it. The kind of question is read from the messages alone, as a
 * model would have to.
 */
import { z } from 'zod';
import { base64Bytes, dataUrlContent, pixelCount } from '../../core/images/image_text.js';
import { badRequest } from '../../core/http/refusal.js';
import { quotedIn } from '../terms/ocr/similarity.js';
import { chatSchema, imagesOf, parseChat, textsOf, type ChatMessage } from '../judge/chat_messages.js';

const requestSchema = chatSchema.extend({
  n: z.number().int().min(1).max(128).nullish(),
  max_tokens: z.number().int().min(1).nullish(),
  max_completion_tokens: z.number().int().min(1).nullish(),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.number().int().min(0).nullish(),
});

type ChatRequest = z.infer<typeof requestSchema>;

/** The content of a request, with images still as data URLs. */
export interface Question {
  readonly kind: QuestionKind;
  readonly instruction: string;
  /** The text answer to grade, with the labeled one (empty if there is none). Null in questions about images. */
  readonly graded: { readonly answer: string; readonly reference: string } | null;
  readonly images: readonly string[];
  readonly choices: number;
  readonly maxTokens: number | null;
  readonly promptTokens: number;
  /** The number of requested alternatives of the first token. Null for none. */
  readonly topLogprobs: number | null;
}

/**
 * `consistency`: source and edited. `quality`: one image. `ground`: truth and prediction. `alignment`: source and edited, with a request in
 * place of an instruction. `sign`: the same for a sign, whose word the request quotes, without the source if there is none. `digit`: source
 * and edited, and the probabilities of one digit. `pair`: the source and two edits. `answer`: no image, but a question, a reference and an
 * answer in words.
 */
export type QuestionKind = 'consistency' | 'quality' | 'ground' | 'alignment' | 'sign' | 'digit' | 'pair' | 'answer';

export const MAX_IMAGES = 3;
/** Pixels that count as a token of an image in the usage figures: 28x28, as Qwen2.5-VL merges its patches. */
const PIXELS_PER_TOKEN = 28 ** 2;

/** A rough count for usage figures and length limits: four characters per token. */
export function countTokens(text: string): number {
  return Math.ceil(text.length / 4);
}

/** An image's count for usage figures, by the size in its header. 0 if the header cannot be read. */
async function countImageTokens(url: string): Promise<number> {
  const content = dataUrlContent(url);
  const pixels = content === null ? null : await pixelCount(content);
  return Math.ceil((pixels ?? 0) / PIXELS_PER_TOKEN);
}

/** The bytes of an image. Raises Refusal. */
export function dataUrlBytes(url: string): Buffer {
  const bytes = base64Bytes(dataUrlContent(url) ?? '');
  if (bytes !== null && bytes.length > 0) return bytes;
  throw badRequest('An image has to be a data URL of the form data:image/png;base64,... for this judge.', 'image_url');
}

/** The most alternatives of a token that vLLM gives by default. */
const MAX_LOGPROBS = 20;

function readTopLogprobs({ logprobs, top_logprobs: wanted }: ChatRequest): number | null {
  const top = wanted ?? 0;
  if (top > 0 && logprobs !== true) {
    throw badRequest('when using `top_logprobs`, `logprobs` must be set to true.', 'top_logprobs');
  }
  if (top > MAX_LOGPROBS) {
    throw badRequest(`Requested sample logprobs of ${top}, which is greater than max allowed: ${MAX_LOGPROBS}`);
  }
  return logprobs === true ? top : null;
}

/** The text after the last line that begins with `Instruction:` or `Request:`. Empty if there is none. */
function lastInstruction(text: string): string {
  const lines = text.split('\n').map((line) => /^\s*(?:Instruction|Request):\s*(.*?)\s*$/.exec(line)?.[1]);
  return lines.findLast((found) => found !== undefined) ?? '';
}

/** The JSON string after a name at the beginning of a line. Null if there is none. */
function quotedLine(text: string, name: string): string | null {
  const found = new RegExp(`^${name}: (".*")$`, 'm').exec(text)?.[1];
  if (found === undefined) return null;
  try {
    return z.string().parse(JSON.parse(found));
  } catch {
    return null;
  }
}

/** A question about a text answer. Empty texts if the request contains none. */
function wordsQuestion(text: string): Pick<Question, 'instruction' | 'graded'> {
  const [instruction, answer] = [quotedLine(text, 'Question'), quotedLine(text, 'Answer')];
  if (instruction === null || answer === null) return { instruction: '', graded: null };
  return { instruction, graded: { answer, reference: quotedLine(text, 'Reference') ?? '' } };
}

/** Reads a request's body. Raises Refusal 400. */
export function parseRequest(body: Buffer): ChatRequest {
  return parseChat(body, requestSchema).request;
}

/** Determines the question. Raises Refusal 400 for a number of images that no question has. */
export async function readQuestion(request: ChatRequest): Promise<Question> {
  const textOf = (message: ChatMessage): string => textsOf(message).join('\n');
  const images = imagesOf(request.messages);
  const system = request.messages.filter(({ role }) => role === 'system').map(textOf);
  const user = request.messages.filter(({ role }) => role === 'user').map(textOf);
  const words = [...system, ...user].join('\n');
  const common = {
    choices: request.n ?? 1,
    maxTokens: request.max_completion_tokens ?? request.max_tokens ?? null,
  };
  if (images.length === 0) {
    const promptTokens = countTokens(words);
    return {
      ...common,
      ...wordsQuestion(words),
      kind: 'answer',
      images,
      topLogprobs: null,
      promptTokens,
    };
  }
  if (images.length > MAX_IMAGES) {
    throw badRequest(`At most ${MAX_IMAGES} image(s) may be provided in one prompt.`, 'messages');
  }
  const asksGround = system.some((text) => text.includes('<score>'));
  if (asksGround && images.length !== 2) {
    throw badRequest('The question needs two images, the true result and the prediction.', 'messages');
  }
  const topLogprobs = readTopLogprobs(request);
  const asksAlignment = user.some((text) => /^\s*Request:/m.test(text));
  const instruction = lastInstruction(user.join('\n'));
  const asksSign = asksAlignment && topLogprobs === null && quotedIn(instruction) !== null;
  if (!asksSign && (asksAlignment || topLogprobs !== null) && images.length !== 2) {
    throw badRequest(
      'The question needs two images, the source and the edit: this judge knows no captions but those of signs, whose word is quoted.',
      'messages',
    );
  }
  const imageTokens = await Promise.all(images.map(countImageTokens));
  const withTwo: QuestionKind = topLogprobs !== null ? 'digit' : asksAlignment ? 'alignment' : 'consistency';
  const byImages: Readonly<Record<number, QuestionKind>> = {
    1: 'quality',
    2: withTwo,
    3: 'pair',
  };
  return {
    ...common,
    graded: null,
    kind: asksGround ? 'ground' : asksSign ? 'sign' : byImages[images.length],
    topLogprobs,
    instruction,
    images,
    promptTokens: imageTokens.reduce((sum, tokens) => sum + tokens, countTokens(words)),
  };
}

/** The content of a chat completion. */
export interface ChatReply {
  readonly content: string;
  readonly finishReason: 'stop' | 'length';
  readonly logprobs?: unknown;
}

/** A chat completion with the same text for every choice, cut if it is longer than allowed. */
export function completion(id: string, model: string, created: number, question: Question, reply: ChatReply): unknown {
  const { choices, maxTokens, promptTokens } = question;
  const isCut = maxTokens !== null && countTokens(reply.content) > maxTokens;
  const content = isCut ? reply.content.slice(0, maxTokens * 4) : reply.content;
  const completionTokens = countTokens(content) * choices;
  return {
    id,
    object: 'chat.completion',
    created,
    model,
    choices: Array.from({ length: choices }, (_, index) => ({
      index,
      message: { role: 'assistant', content, refusal: null, tool_calls: [] },
      logprobs: reply.logprobs ?? null,
      finish_reason: isCut ? 'length' : reply.finishReason,
      stop_reason: null,
    })),
    usage: {
      prompt_tokens: promptTokens,
      completion_tokens: completionTokens,
      total_tokens: promptTokens + completionTokens,
    },
  };
}

export interface Answer {
  /** `list`: a JSON object with a list of scores. `tag`: words, and one score in a tag. */
  readonly form: 'list' | 'tag';
  /** The requested number of scores, each from 0 to 10. Empty if the answer is only `reasoning`. */
  readonly scores: readonly number[];
  readonly reasoning: string;
}

/** The text of an answer without faults. */
export function writeAnswer({ form, scores, reasoning }: Answer): string {
  if (scores.length === 0) return reasoning;
  return form === 'list' ? JSON.stringify({ score: scores, reasoning }) : `${reasoning}\n<score>${scores[0]}</score>`;
}

const HIGHEST_DIGIT = 5;
/** Probability of tokens that are not digits. */
const ELSEWHERE = 0.02;

/**
 * A reply whose expected digit is half of `score` (0 to 10): the two nearest digits share the probability as in linear interpolation. Lists
 * at most `most` alternatives, the likeliest first.
 */
export function digitReply(score: number, most: number): ChatReply {
  const expected = (score / 10) * HIGHEST_DIGIT;
  const low = Math.floor(expected);
  const likely: readonly (readonly [string, number])[] = [
    [String(low), (1 - ELSEWHERE) * (1 - (expected - low))],
    [String(low + 1), (1 - ELSEWHERE) * (expected - low)],
    [' ', ELSEWHERE],
  ];
  const logprobs = likely
    .filter(([, probability]) => probability > 0)
    .sort(([, one], [, other]) => other - one)
    .map(([token, probability]) => ({
      token,
      logprob: Math.log(probability),
      bytes: [...Buffer.from(token)],
    }));
  const [first] = logprobs;
  return {
    content: first.token,
    finishReason: 'length',
    logprobs: { content: [{ ...first, top_logprobs: logprobs.slice(0, most) }] },
  };
}
