/** The rule judge as a running server: who may ask it, and what its clients find. */
import OpenAI from 'openai';
import { afterEach, describe, expect, it } from 'vitest';
import {
  JUDGE_MODEL,
  startJudge,
  type JudgeOptions,
  type RunningJudge,
} from '../../../src/rewards/rule_judge/server.js';
import { rawStatus } from '../../core/http/client.js';

const judges: RunningJudge[] = [];
afterEach(async () => {
  for (const judge of judges.splice(0)) await judge.close();
});

async function judge(options: Partial<JudgeOptions> = {}): Promise<RunningJudge> {
  const started = await startJudge({ port: 0, host: '127.0.0.1', ...options });
  judges.push(started);
  return started;
}

describe('who may ask', () => {
  it('is reported at the start if others can reach the address', async () => {
    await expect(judge({ host: '0.0.0.0' })).rejects.toThrow('other machines can reach 0.0.0.0');
    await expect(judge({ host: '0.0.0.0', token: 'short' })).rejects.toThrow('at least 16');
  });

  it('has to have the token, but for its health', async () => {
    const { url } = await judge({ token: 'a-token-of-the-test' });
    const status = async (path: string, headers: Record<string, string> = {}) =>
      (await fetch(new URL(path, url), { headers })).status;
    expect([await status('/health'), await status('/v1/models'), await status('/stats')]).toEqual([200, 401, 401]);
    expect(await status('/v1/models', { authorization: 'Bearer a-token-of-the-test' })).toBe(200);
  });

  it('is no web page', async () => {
    const { url } = await judge();
    for (const line of ['host: evil.com', 'host: localhost\r\norigin: http://evil.com']) {
      expect(await rawStatus(url, ['GET /v1/models HTTP/1.1', line]), line).toBe(403);
    }
    expect(await rawStatus(url, ['GET // HTTP/1.1', 'host: localhost'])).toBe(404);
  });
});

it('names one model', async () => {
  const { url } = await judge({ models: ['Qwen/Qwen2.5-VL'] });
  const client = new OpenAI({ baseURL: url, apiKey: 'none', maxRetries: 0 });
  const found = await client.models.retrieve('Qwen/Qwen2.5-VL');
  expect(found).toMatchObject({ id: 'Qwen/Qwen2.5-VL', root: JUDGE_MODEL, max_model_len: 8192 });
  await expect(client.models.retrieve('other')).rejects.toMatchObject({ status: 404 });
});
