import { describe, expect, it } from 'vitest';
import { firstRequest, hashRequest, toChatRequest } from '../../../src/rewards/judge/chat_request.js';
import { dialectOf, leavableFields, refusedField, vllmForm } from '../../../src/rewards/judge/dialect.js';
import { judgeImage } from '../../../src/rewards/judge/images.js';
import type { JudgeQuery } from '../../../src/rewards/judge/judge.js';
import { twoScores } from '../../../src/rewards/judge/prompts.js';
import { numberedImage } from './stub_judge.js';

const image = judgeImage(numberedImage(7, 32), 'test');
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

const fieldsOf = async (...asked: Parameters<typeof toChatRequest>): Promise<string[]> =>
  Object.keys(await toChatRequest(...asked)).filter((name) => !['model', 'messages'].includes(name));

describe('a request', () => {
  it('has all fields for a server of open models', async () => {
    const request = await toChatRequest(query, 'm', vllmForm, { ...firstRequest, sample: 1, room: 4 });
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
    expect(new Set(await fieldsOf(query, 'm'))).toEqual(new Set(leavableFields));
  });

  it("has the fields of OpenAI's schema for its service, log-probabilities among them", async () => {
    const openai = { dialect: 'openai', leaveOut: [] } as const;
    const kept = leavableFields.filter((name) => name !== 'top_k' && name !== 'repetition_penalty');
    expect(new Set(await fieldsOf({ ...query, topLogprobs: 20 }, 'm', openai))).toEqual(
      new Set([...kept, 'logprobs', 'top_logprobs']),
    );
  });

  it('is left without the fields that the config leaves out, under the older name of the limit', async () => {
    const form = { ...vllmForm, leaveOut: ['temperature', 'response_format', 'n', 'max_completion_tokens'] } as const;
    expect((await fieldsOf(query, 'm', form)).sort()).toEqual([
      'max_tokens',
      'repetition_penalty',
      'seed',
      'top_k',
      'top_p',
    ]);
    expect(hashRequest(query, 'm', form)).not.toBe(hashRequest(query, 'm'));
  });

  it('goes by the address', () => {
    expect(dialectOf(['https://api.openai.com/v1'])).toBe('openai');
    expect(dialectOf(['https://mine.openai.azure.com/v1'])).toBe('openai');
    expect(dialectOf(['http://gpu7:4877/v1', 'http://127.0.0.1:4877/v1'])).toBe('vllm');
    expect(dialectOf(['https://api.openai.com.example.org/v1', 'https://notapi.openai.com.de/v1'])).toBe('vllm');
  });
});

describe('the field that a server rejects', () => {
  const said = (words: string, status = 400, param: string | null = null) => refusedField({ status, param, words });

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
    expect(said(words)).toBe(field);
  });

  it('is the one that it names beside its words', () => {
    const words = "Use 'temperature' with care: only the default value is supported";
    expect(said(words, 400, 'top_p')).toBe('top_p');
    expect(said(words, 400, 'response_format.json_schema')).toBe('response_format');
    expect(said(words, 400, 'None')).toBe('temperature');
  });

  it.each<readonly [string, number]>([
    ['The model `doubao-seed-1.6-vision` does not exist', 400],
    ['At most 1 image(s) may be provided in one prompt.', 400],
    ['Incorrect API key provided: top_k', 401],
    ['The model `temperature` does not exist', 404],
    ['seed exploded', 500],
    ['no more top_k today', 429],
  ])('is none where it rejects something else: %s (%d)', (words, status) => {
    expect(said(words, status)).toBeNull();
  });

  it.each([400, 422, 501])('comes with status %d', (status) => {
    expect(said('unknown field top_k', status)).toBe('top_k');
  });

  it('may come with a 500 of LiteLLM', () => {
    expect(said("litellm.UnsupportedParamsError: bedrock does not support parameters: ['seed']", 500)).toBe('seed');
  });
});
