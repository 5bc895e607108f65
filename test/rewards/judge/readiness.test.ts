import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ConfigError, EndpointError } from '../../../src/core/errors.js';
import type { Endpoint } from '../../../src/rewards/judge/endpoints.js';
import { resolveEndpoints } from '../../../src/rewards/judge/endpoints.js';
import { waitUntilReady } from '../../../src/rewards/judge/readiness.js';
import type { Behave, StubOptions } from './stub_judge.js';
import { fastClock, openAiError, startStubJudge, stubModel } from './stub_judge.js';
import { stubPlace } from './stub_place.js';

const { closing, serve } = stubPlace();
const answers: Behave = () => ({ kind: 'text', text: 'ready' });

async function failure(endpoint: Endpoint, maxWaitS = 0, model = stubModel): Promise<EndpointError> {
  const error: unknown = await waitUntilReady(endpoint, model, { maxWaitS, clock: fastClock(100) }).catch(
    (cause: unknown) => cause,
  );
  expect(error).toBeInstanceOf(EndpointError);
  return error as EndpointError;
}

function temporaryFile(content: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'editrl-endpoint-'));
  closing.push(async () => rmSync(folder, { recursive: true }));
  const file = join(folder, 'node.txt');
  writeFileSync(file, content);
  return file;
}

describe('resolveEndpoints', () => {
  it.each<readonly [Endpoint, readonly string[]]>([
    ['http://judge:4877', ['http://judge:4877/v1']],
    ['http://judge:4877/', ['http://judge:4877/v1']],
    ['http://judge:4877/v1', ['http://judge:4877/v1']],
    ['http://judge:4877/v1/', ['http://judge:4877/v1']],
    ['https://host/proxy', ['https://host/proxy']],
    ['https://host/v1beta/openai/', ['https://host/v1beta/openai']],
    [
      ['http://a:1', 'http://b:1/v1', 'http://a:1/v1'],
      ['http://a:1/v1', 'http://b:1/v1'],
    ],
  ])('%j', (endpoint, urls) => {
    expect(resolveEndpoints(endpoint)).toEqual(urls);
  });

  it('reads the host from a node file', () => {
    expect(resolveEndpoints({ node_file: temporaryFile('gpu-07.cluster\n'), port: 4877 })).toEqual([
      'http://gpu-07.cluster:4877/v1',
    ]);
  });

  it('reports what is wrong with a node file', () => {
    expect(() => resolveEndpoints({ node_file: '/nowhere/node.txt', port: 1 })).toThrow(EndpointError);
    expect(() => resolveEndpoints({ node_file: temporaryFile('\n'), port: 1 })).toThrow(
      /first line of the node file should be a host name/,
    );
  });

  it('names the variable where the address is empty, and the form where it is wrong', () => {
    expect(() => resolveEndpoints('')).toThrow(ConfigError);
    try {
      resolveEndpoints(' ');
    } catch (error) {
      expect((error as ConfigError).next).toContain('APP__REWARD_FUNCTION_API_BASE');
    }
    try {
      resolveEndpoints('judge:4877');
      expect.fail('no error');
    } catch (error) {
      expect((error as ConfigError).toText()).toContain('http://judge:4877/v1');
    }
  });
});

describe('waitUntilReady', () => {
  it('asks for the listing and for a completion with two images', async () => {
    const stub = await serve(answers);
    const ready = await waitUntilReady(stub.url, stubModel, { maxWaitS: 0 });
    expect(ready).toEqual({ endpoints: [stub.url], context: 4096 });
    expect(stub.requests.map(({ images }) => images.length)).toEqual([2]);
  });

  it('asks one that compares edits for a completion with three images, and says what a server lacks that takes two', async () => {
    const stub = await serve(answers);
    await waitUntilReady(stub.url, stubModel, { maxWaitS: 0, shown: 3 });
    expect(stub.requests.map(({ images }) => images.length)).toEqual([3]);
    const limited = await serve(({ images }) =>
      images.length > 2
        ? openAiError(400, 'At most 2 image(s) may be provided in one prompt.')
        : { kind: 'text', text: 'ready' },
    );
    await waitUntilReady(limited.url, stubModel, { maxWaitS: 0 });
    const error = await waitUntilReady(limited.url, stubModel, { maxWaitS: 0, shown: 3 }).catch(
      (found: unknown) => found as EndpointError,
    );
    expect(error).toHaveProperty('message', expect.stringContaining('At most 2 image(s)'));
    expect(error).toHaveProperty('next', expect.stringContaining(`Allow three images per request`));
    const many = await waitUntilReady(limited.url, stubModel, { maxWaitS: 0, shown: 9 }).catch(
      (found: unknown) => found as EndpointError,
    );
    expect(many).toHaveProperty('next', expect.stringMatching(/Allow 9 images per request.*'\{"image":9,"video":0\}'/));
    expect(limited.requests.at(-1)).toMatchObject({ images: { length: 9 } });
  });

  it('waits while a judge is starting', async () => {
    let looks = 0;
    const stub = await serve(() => (++looks < 3 ? openAiError(503, 'loading') : { kind: 'text', text: 'ready' }));
    const found: string[] = [];
    const clock = fastClock(100);
    await waitUntilReady(stub.url, stubModel, { maxWaitS: 600, clock, onWaiting: (text) => found.push(text) });
    expect(found).toHaveLength(2);
    expect(found[0]).toContain('503 loading');
  });

  it('gives up on a judge that is down, naming its address and what to do', async () => {
    const stub = await startStubJudge(answers);
    await stub.close();
    const error = await failure(stub.url, 12);
    expect(error.exitCode).toBe(3);
    expect(error.toText()).toContain(stub.url);
    expect(error.message).toContain('ECONNREFUSED');
    expect(error.next).toContain('Start the judge');
  });

  it.each<readonly [string, Behave, StubOptions, RegExp]>([
    [
      'no OpenAI-compatible server',
      answers,
      { models: { kind: 'raw', status: 200, contentType: 'text/html', body: '<html>nginx</html>' } },
      /not a list of models as OpenAI-compatible servers send it.*nginx/,
    ],
    [
      'another JSON service',
      answers,
      { models: { kind: 'json', body: { status: 'ok' } } },
      /not a list of models as OpenAI-compatible servers send it/,
    ],
    [
      'a listing of nothing',
      answers,
      { models: { kind: 'json', body: { data: [null] } } },
      /not a list of models as OpenAI-compatible servers send it.*null/,
    ],
    [
      'a listing that no reader foresaw',
      answers,
      { models: { kind: 'json', body: { data: [{ id: { toString: 1 } }] } } },
      /the check failed: TypeError/,
    ],
    ['no such path', answers, { models: { kind: 'json', status: 404, body: { detail: 'Not Found' } } }, /404/],
    ['a key is needed', answers, { models: { kind: 'json', status: 401, body: { error: 'Unauthorized' } } }, /401/],
    [
      'one image only',
      () => openAiError(400, 'At most 1 image(s) may be provided in one prompt.'),
      {},
      /At most 1 image/,
    ],
    ['no text', () => ({ kind: 'json', body: { choices: [] } }), {}, /gave no text/],
  ])('gives up at once: %s', async (_name, behave, options, message) => {
    const stub = await serve(behave, options);
    const error = await failure(stub.url, 1e9);
    expect(error.message).toMatch(message);
    expect(error.where).toBe(stub.url);
    expect(error.next).toBeTruthy();
  });

  it('is not given up for an odd reply or two: three in a row convince', async () => {
    let looks = 0;
    const stub = await serve((request) => (++looks < 3 ? { kind: 'json', body: { choices: [] } } : answers(request)));
    const ready = await waitUntilReady(stub.url, stubModel, { maxWaitS: 1e9, clock: fastClock(100) });
    expect(ready.endpoints).toEqual([stub.url]);
    expect(looks).toBe(3);
  });

  it('needs every judge of a list', async () => {
    const [good, bad] = [await serve(answers), await serve(answers, { models: { kind: 'json', body: { data: [] } } })];
    expect((await failure([good.url, bad.url])).where).toBe(bad.url);
  });
});
