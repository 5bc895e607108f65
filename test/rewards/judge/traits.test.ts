import { describe, expect, it } from 'vitest';
import { hashRequest, toChatRequest } from '../../../src/rewards/judge/chat_request.js';
import { JudgeImages } from '../../../src/rewards/judge/images.js';
import type { JudgeQuery } from '../../../src/rewards/judge/judge.js';
import { isOverflow } from '../../../src/rewards/judge/overflow.js';
import { twoScores } from '../../../src/rewards/judge/prompts.js';
import {
  commonTraits,
  describeTraits,
  dialectOf,
  refusedFields,
  startingTraits,
  withoutRefusedFields,
  type Traits,
} from '../../../src/rewards/judge/traits.js';
import { numberedImage } from './stub_judge.js';

const image = new JudgeImages().prepare(numberedImage(7, 32), 'test');
const query: JudgeQuery = {
  key: 'k',
  messages: [
    { role: 'system', parts: ['rules'] },
    { role: 'user', parts: ['Grade this.', image] },
  ],
  format: twoScores,
  temperature: 0.3,
  maxCompletionTokens: 400,
  parse: () => ({ ok: true, scores: [] }),
};

describe('what is hashed of a request', () => {
  it('names recorded judgements by what it always was', () => {
    expect(hashRequest(query, 'm')).toBe('33ada6e95bce66ec2bf71a2439638a2763a73ad8029d7c5d430aef638bb646e7');
    expect(hashRequest(query, 'm', 'openai')).toBe('e93a83ff76cb2b9927f53f1dc8e44871a901be8ce3f119ff89e848a6ec64232a');
    const digit = { ...query, format: null, topLogprobs: 20 };
    expect(hashRequest(digit, 'm')).toBe('50445e76d59f7044592d97144a3f27d1187efe6bb4fc5598664eda1567aa9a1d');
  });
});

describe('a request', () => {
  it('has all fields for a server that takes them', async () => {
    const request = await toChatRequest(query, 'm', 1, startingTraits.vllm, { room: 4 });
    expect(request).toMatchObject({
      n: 1,
      temperature: 0.3,
      top_p: 1,
      top_k: -1,
      repetition_penalty: 1,
      seed: 43,
      max_completion_tokens: 1600,
      response_format: { type: 'json_schema', json_schema: { name: 'two_scores' } },
    });
  });

  it('is left without what a server refuses, and calls its limit as the server does', async () => {
    const traits: Traits = { leftOut: ['temperature', 'response_format', 'n'], tokenLimit: 'max_tokens' };
    const request = await toChatRequest(query, 'm', 0, traits);
    expect(Object.keys(request).sort()).toEqual(
      ['model', 'messages', 'top_p', 'top_k', 'repetition_penalty', 'seed', 'max_tokens'].sort(),
    );
    expect(request.max_tokens).toBe(400);
  });
});

describe('the field that a server refuses', () => {
  const said = (words: string, status = 400, param: string | null = null) => refusedFields({ status, param, words });

  it.each<readonly [string, string]>([
    ['Unrecognized request argument supplied: top_k', 'top_k'],
    ['Unrecognized request arguments supplied: repetition_penalty, top_k', 'repetition_penalty'],
    ["Unknown parameter: 'seed'.", 'seed'],
    ["Unsupported value: 'n' does not support 1 with this model.", 'n'],
    [
      "litellm.UnsupportedParamsError: openai does not support parameters: ['temperature', 'seed'], for model=o4-mini",
      'temperature',
    ],
    [
      'litellm.UnsupportedParamsError: gpt-5-nano doesn\u2019t support temperature=0.1 while reasoning is active.',
      'temperature',
    ],
    ['This response_format type is unavailable now', 'response_format'],
    ['response_format.type `json_schema` is unavailable now at line 1 column 1193', 'response_format'],
    ['The provided JSON schema contains features not supported by xgrammar.', 'response_format'],
    ['Argument not supported on this model: repetitionPenalty', 'repetition_penalty'],
    ['top_k is currently not supported by our generation engine.', 'top_k'],
    ["'max_completion_tokens' is unknown; use 'max_tokens' instead", 'max_completion_tokens'],
    // If two fields exclude each other, the more dispensable one is dropped, whichever is named first.
    ['`temperature` and `top_p` cannot both be specified for this model. Please use only one.', 'top_p'],
  ])('is the one in its words: %s', (words, field) => {
    expect(said(words)[0]).toBe(field);
  });

  it('is the one that it names beside its words', () => {
    const words = "Use 'temperature' with care: only the default value is supported";
    expect(said(words, 400, 'top_p')).toEqual(['top_p']);
    expect(said(words, 400, 'response_format.json_schema')).toEqual(['response_format']);
    expect(said(words, 400, 'None')).toEqual(['temperature']);
  });

  it.each<readonly [string, number]>([
    ['The model `doubao-seed-1.6-vision` does not exist', 400],
    ['At most 1 image(s) may be provided in one prompt.', 400],
    ['Incorrect API key provided: top_k', 401],
    ['The model `temperature` does not exist', 404],
    ['seed exploded', 500],
    ['no more top_k today', 429],
  ])('is none where it refuses something else: %s (%d)', (words, status) => {
    expect(said(words, status)).toEqual([]);
  });

  it.each([400, 422, 501])('comes with status %d', (status) => {
    expect(said('unknown field top_k', status)).toEqual(['top_k']);
  });

  it('may come with a 500 of LiteLLM', () => {
    expect(said("litellm.UnsupportedParamsError: bedrock does not support parameters: ['seed']", 500)).toEqual([
      'seed',
    ]);
  });
});

describe('traits', () => {
  const { vllm, openai } = startingTraits;

  it('lose the first refused field that was sent', () => {
    expect(withoutRefusedFields(vllm, ['seed', 'top_k'])).toEqual({ ...vllm, leftOut: ['seed'] });
    expect(withoutRefusedFields(openai, ['seed', 'temperature'])).toEqual({
      ...openai,
      leftOut: [...openai.leftOut, 'temperature'],
    });
    expect(withoutRefusedFields(openai, ['seed', 'top_k'])).toBeNull();
    expect(withoutRefusedFields(vllm, [])).toBeNull();
  });

  it('call the limit otherwise only where the one that is sent is refused', () => {
    expect(withoutRefusedFields(vllm, ['max_tokens'])).toBeNull();
    const older = withoutRefusedFields(vllm, ['max_completion_tokens']);
    expect(older).toEqual({ ...vllm, tokenLimit: 'max_tokens' });
    expect(withoutRefusedFields(older ?? vllm, ['max_tokens'])).toEqual(vllm);
  });

  it('of several servers are those that all take', () => {
    const one: Traits = { leftOut: ['temperature'], tokenLimit: 'max_completion_tokens' };
    const other: Traits = { leftOut: ['top_k'], tokenLimit: 'max_tokens' };
    expect(commonTraits([one, other])).toEqual({ leftOut: ['top_k', 'temperature'], tokenLimit: 'max_tokens' });
    expect(commonTraits([vllm])).toEqual(vllm);
  });

  it('are told where they are not what was known', () => {
    expect(describeTraits(openai, openai)).toBeNull();
    expect(describeTraits({ ...openai, leftOut: [...openai.leftOut, 'response_format'] }, openai)).toBe(
      'does not take response_format (json_schema): left out',
    );
  });

  it('begin by the address', () => {
    expect(dialectOf(['https://api.openai.com/v1'])).toBe('openai');
    expect(dialectOf(['https://mine.openai.azure.com/v1'])).toBe('openai');
    expect(dialectOf(['http://gpu7:4877/v1', 'http://127.0.0.1:4877/v1'])).toBe('vllm');
    expect(dialectOf(['https://api.openai.com.example.org/v1', 'https://notapi.openai.com.de/v1'])).toBe('vllm');
  });
});

describe('an overflow', () => {
  it.each<readonly [number, string]>([
    [400, 'Requested tokens (2285) exceed context window of 2048'],
    [400, 'The input token count (2845475) exceeds the maximum number of tokens allowed (1048576).'],
    [400, 'Prompt contains 5180 tokens, too large for model with 4096 maximum context length'],
    [400, "'max_tokens' or 'max_completion_tokens' is too large: 1400."],
    [413, ''],
  ])('is what a %d says: %s', (status, words) => {
    expect(isOverflow(status, words)).toBe(true);
  });

  it.each<readonly [number, string]>([
    [401, "This model's maximum context length is 4096 tokens."],
    [429, 'Request too large: maximum context length'],
    [503, 'the request exceeds the available context size'],
    [400, 'the image is too large'],
  ])('is not what a %d says: %s', (status, words) => {
    expect(isOverflow(status, words)).toBe(false);
  });
});
