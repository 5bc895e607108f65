import { describe, expect, it } from 'vitest';
import { urlsToShare } from '../../src/launch/shared_gateway.js';

describe('which judges are shared through a gateway', () => {
  it.each([
    ['a list', ['http://a/v1', 'http://b/v1'], false, ['http://a/v1', 'http://b/v1']],
    ['one judge of several runs', 'http://a/v1', true, ['http://a/v1']],
    ['one judge of one run', 'http://a/v1', false, null],
    ['the embedded judge', 'embedded', true, null],
    ["OpenAI's own service", 'https://api.openai.com/v1', true, null],
    ['a node file', { node_file: 'node.txt', port: 4877 }, true, null],
  ])('%s', (_what, endpoint, severalRuns, urls) => {
    expect(urlsToShare(endpoint, severalRuns)).toEqual(urls);
  });
});
