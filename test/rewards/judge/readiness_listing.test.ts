/** Looking at a judge whose every answer costs money. */
import { afterEach, describe, expect, it } from 'vitest';
import { allowBySetting } from '../../../src/rewards/judge/endpoints.js';
import { EndpointError } from '../../../src/core/errors.js';
import { probeFor, waitUntilReady } from '../../../src/rewards/judge/readiness.js';
import { apiError, apiModel, startPaidApi, type ApiReply, type PaidApi, type PaidApiOptions } from './paid_api.js';
import { completion, fastClock } from './stub_judge.js';

const key = 'sk-test-5e8a21c7';
const names = {
  judge: 'the judge of a test',
  endpoint: 'its endpoint',
  model: 'its model',
  allow: allowBySetting('its model_alias'),
  key: 'TEST_KEY',
  start: 'Start it.',
};

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

async function serve(options: Partial<PaidApiOptions> = {}): Promise<PaidApi> {
  const api = await startPaidApi({ key, ...options });
  closing.push(api.close);
  return api;
}

async function look({ url }: Pick<PaidApi, 'url'>, apiKey = key, model = apiModel): Promise<EndpointError | null> {
  const options = { maxWaitS: 1e6, clock: fastClock(20), apiKey, probe: 'listing', names } as const;
  try {
    await waitUntilReady(url, model, options);
    return null;
  } catch (error) {
    expect(error).toBeInstanceOf(EndpointError);
    return error as EndpointError;
  }
}

describe('a probe of the listing', () => {
  it('buys nothing where the listing shows that the model is there and the key is right', async () => {
    const api = await serve();
    expect(await look(api)).toBeNull();
    expect(api.asked).toEqual(['/models', '!/models']);
  });

  it.each<readonly [string, Partial<PaidApiOptions>]>([
    ['is there for everyone, and so says nothing about the key', { openListing: true }],
    ['does not exist', { models: apiError(404, 'Not Found') }],
    ['may not be read with this key', { models: apiError(403, 'Missing scopes: api.model.read') }],
    ['names deployments otherwise', { models: [200, { data: [{ id: 'gpt' }] }] }],
    ['is a page', { models: [200, '<html>portal</html>'] }],
  ])('asks for one small completion where the listing %s', async (_what, options) => {
    const api = await serve(options);
    expect(await look(api)).toBeNull();
    expect(api.asked.filter((path) => path === '/chat/completions')).toHaveLength(1);
  });

  it.each<readonly [string, Partial<PaidApiOptions>]>([
    ['that guards its listing', {}],
    ['that shows its listing to everyone', { openListing: true }],
    ['without a listing', { models: apiError(404, 'Not Found') }],
  ])('finds a wrong key at a server %s, names its variable, and never shows it', async (_what, options) => {
    const api = await serve(options);
    const wrong = 'sk-test-another-one';
    const error = await look(api, wrong);
    expect(error?.message).toMatch(/^the judge of a test is not ready: .*401 .*Incorrect API key/);
    expect(error?.message.match(/Incorrect/g)).toHaveLength(1);
    expect(error).toMatchObject({ where: api.url, next: 'Export TEST_KEY with a key that the server takes.' });
    expect(error?.toText()).not.toContain(wrong);
    expect(api.asked.filter((path) => !path.startsWith('!'))).toEqual([]);
  });

  it('finds a wrong model, and says which there are', async () => {
    const error = await look(await serve(), key, 'gpt-5-typo');
    expect(error?.message).toMatch(/it does not serve 'gpt-5-typo'; it serves: 'stub-judge', 'other', and .*404/);
    expect(error?.next).toMatch(/^Set its model to a model that it serves/);
  });

  it('names a few of very many models', async () => {
    const data = Array.from({ length: 300 }, (_, i) => ({ id: `m${i}` }));
    const error = await look(await serve({ models: [200, { data }] }), key, 'none-of-them');
    expect(error?.message).toContain("'m19' and 280 more");
    expect(error?.message).not.toContain("'m20'");
  });

  it.each<readonly [string, ApiReply, ApiReply]>([
    ['a web page', [200, '<html>nginx</html>'], [404, '<html>nginx</html>']],
    ['another service', [200, { status: 'ok' }], apiError(404, 'no such path')],
  ])('finds a wrong address: %s', async (_what, models, chat) => {
    const api = await serve({ models, chat: () => chat });
    const error = await look(api);
    expect(error?.message).toMatch(/its \/models is not that of an OpenAI-compatible server, but .*, and HTTP 404/);
    expect(error?.next).toMatch(/^Correct its endpoint: /);
  });

  it('says that nobody is there, after its wait', async () => {
    const api = await serve();
    await api.close();
    const options = { maxWaitS: 0, apiKey: key, probe: 'listing', names } as const;
    const looking = waitUntilReady(api.url, apiModel, options);
    await expect(looking).rejects.toThrow(/the judge of a test is not ready: .*ECONNREFUSED/);
    await expect(looking).rejects.toMatchObject({ where: api.url, next: 'Start it.' });
  });

  it('waits while a small completion is refused for a while', async () => {
    let looks = 0;
    const chat = (): ApiReply => (++looks < 5 ? apiError(429, 'slow down') : [200, completion('grey', 'stop')]);
    expect(await look(await serve({ openListing: true, chat }))).toBeNull();
    expect(looks).toBe(5);
  });

  it('finds a model that sees no images, where it has to ask for a completion', async () => {
    const chat = (): ApiReply => apiError(400, 'Invalid content type. image_url is only supported by certain models.');
    const error = await look(await serve({ openListing: true, chat }));
    expect(error?.message).toContain("it lists 'stub-judge', but HTTP 400 Invalid content type. image_url");
  });
});

describe('which probe is used', () => {
  it.each([
    ['https://api.openai.com/v1', 'listing'],
    ['https://openrouter.ai/api/v1', 'listing'],
    ['https://localhost:8443/v1', 'completion'],
    ['http://gpu7:4877/v1', 'completion'],
    ['http://127.0.0.1:4877/v1', 'completion'],
  ])('%s: %s', (url, probe) => {
    expect(probeFor(url)).toBe(probe);
  });
});
