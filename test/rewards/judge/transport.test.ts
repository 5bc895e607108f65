import { describe, expect, it } from 'vitest';
import type { ChatRequest } from '../../../src/rewards/judge/chat_request.js';
import { Deadline } from '../../../src/core/clock.js';
import { defaultTransportPolicy, Transport } from '../../../src/rewards/judge/transport.js';
import { ManualClock } from '../../core/manual_clock.js';
import { openAiError, stubModel, type Behave, type StubJudge } from './stub_judge.js';
import { stubPlace } from './stub_place.js';

const { closing, serve } = stubPlace();

/** A way to a judge that is left alone after its first failure, and the clock that it goes by. */
async function made(behave: Behave): Promise<{ stub: StubJudge; transport: Transport; clock: ManualClock }> {
  const stub = await serve(behave);
  const clock = new ManualClock();
  const policy = { ...defaultTransportPolicy, maxAttempts: 2, breakerLimit: 1 };
  const options = { endpoints: [stub.url], apiKey: 'none', connections: 4, policy, clock, random: () => 0.5 };
  const transport = new Transport(options);
  closing.push(() => transport.close());
  return { stub, transport, clock };
}

const request: ChatRequest = {
  model: stubModel,
  messages: [{ role: 'user', content: [{ type: 'text', text: 'Is it?' }] }],
};
const minutes = (clock: ManualClock, count: number, signal?: AbortSignal): Deadline =>
  new Deadline(clock, count * 60_000, signal);

describe('the breaker', () => {
  it('does not count what the caller calls off: it reports nothing about the judge', async () => {
    let caller: AbortController;
    const { stub, transport, clock } = await made(() => {
      caller.abort();
      return openAiError(500, 'broken');
    });
    for (const asked of [1, 2, 3]) {
      caller = new AbortController();
      const { reply, attempts } = await transport.send(request, minutes(clock, 60, caller.signal));
      expect([reply.kind, attempts]).toEqual(['problem', 1]);
      expect(stub.requests).toHaveLength(asked);
    }
  });

  it('counts a question whose time is over, and one whose attempts are', async () => {
    const timely = await made(() => ({ kind: 'silent' }));
    const late = timely.transport.send(request, minutes(timely.clock, 1));
    while (timely.stub.requests.length === 0) await timely.clock.pass(0);
    await timely.clock.pass(60_000);
    expect((await late).reply).toMatchObject({ problem: 'timeout' });
    expect(await timely.transport.send(request, minutes(timely.clock, 1))).toMatchObject({ attempts: 0 });

    const failing = await made(() => openAiError(500, 'broken'));
    let done = false;
    const tried = failing.transport.send(request, minutes(failing.clock, 60)).finally(() => (done = true));
    while (!done) await failing.clock.pass(100);
    expect((await tried).attempts).toBe(2);
    expect(await failing.transport.send(request, minutes(failing.clock, 60))).toMatchObject({
      attempts: 0,
      reply: { detail: 'not asked: the last 1 questions to the judge failed' },
    });
  });
});
