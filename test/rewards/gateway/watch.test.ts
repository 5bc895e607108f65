/** What a look at an upstream that serves makes of it. */
import { afterEach, expect, it } from 'vitest';
import { startGateway } from '../../../src/rewards/gateway/server.js';
import { until } from '../../http/client.js';
import { openAiError, scoresText, startStubJudge, stubModel, type Behaviour } from '../judge/stub_judge.js';

const opened: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0).reverse()) await close();
});

it.each([
  ['stays where it turns the look away', openAiError(429, 'too many requests'), 200],
  ['is closed where the look finds it broken', openAiError(500, 'the engine is dead'), 503],
] as const)('a suspected upstream %s', async (_what, duringLook: Behaviour, status) => {
  let looks = 0;
  const stub = await startStubJudge(({ text }) => {
    if (text.startsWith('This is a check')) return looks++ === 0 ? { kind: 'text', text: 'fine' } : duringLook;
    return text === 'innocent' ? scoresText(7, 8) : openAiError(500, 'cannot take this');
  });
  opened.push(stub.close);
  const running = await startGateway({ upstreams: [stub.url], model: stubModel, port: 0 }, { canaries: null });
  opened.push(() => running.close());
  await running.ready;
  const post = async (text: string): Promise<number> => {
    const reply = await fetch(`${running.url}/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: stubModel, messages: [{ role: 'user', content: [{ type: 'text', text }] }] }),
    });
    await reply.arrayBuffer();
    return reply.status;
  };
  for (let i = 0; i < 5; i++) expect(await post(`unfit ${i}`)).toBe(500);
  // The look after the one that was turned away, too: each has been dealt with when the next one begins.
  await until(() => looks >= 3);
  for (let i = 0; i < 5; i++) expect(await post('innocent')).toBe(status);
});
