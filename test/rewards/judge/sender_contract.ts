/** What every sender promises, wherever it sends from. */
import { afterEach, describe, expect, it } from 'vitest';
import { firstRequest } from '../../../src/rewards/judge/chat_request.js';
import { vllmForm, type RequestForm } from '../../../src/rewards/judge/dialect.js';
import { JudgeImages } from '../../../src/rewards/judge/images.js';
import type { OpenSender, Sender, SenderOptions, SendOptions, SentQuery } from '../../../src/rewards/judge/sender.js';
import { defaultTransportPolicy } from '../../../src/rewards/judge/transport.js';
import { numberedImage, numberOf, openAiError, startStubJudge, stubModel, type Behave } from './stub_judge.js';

const images = new JudgeImages();

export function queryAbout(...numbers: readonly number[]): SentQuery {
  const parts = numbers.map((number) => images.prepare(numberedImage(number, 64), `image ${number}`));
  return {
    messages: [
      { role: 'system', parts: ['Be brief.'] },
      { role: 'user', parts: ['How good?', ...parts] },
    ],
    format: null,
    temperature: 0,
    maxCompletionTokens: 16,
  };
}

export const first: SendOptions = { variation: firstRequest, withinMs: 30_000 };

export function senderOptions(url: string, changes: Partial<SenderOptions> = {}): SenderOptions {
  const policy = { ...defaultTransportPolicy, backoffBaseMs: 1, maxAttempts: 2 };
  const told = { endpoints: [url], model: stubModel, form: vllmForm, apiKey: 'key-0123456789' };
  return { ...told, concurrency: 4, policy, ...changes };
}

const later = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

export function senderContract(name: string, open: OpenSender): void {
  describe(`a sender, ${name}`, () => {
    const closing: (() => Promise<void>)[] = [];
    afterEach(async () => {
      for (const close of closing.splice(0).reverse()) await close();
    });

    async function sendTo(behave: Behave, changes: Partial<SenderOptions> = {}) {
      const stub = await startStubJudge(behave);
      closing.push(stub.close);
      const sender: Sender = open(senderOptions(stub.url, changes));
      closing.push(() => sender.close());
      return { stub, sender };
    }

    it('sends texts and pictures in order and hands back what the judge said', async () => {
      const { sender, stub } = await sendTo(async ({ images: shown, system }) => ({
        kind: 'text',
        text: `${system} ${(await Promise.all(shown.map(numberOf))).join(' ')}`,
      }));
      const sent = await sender.send(queryAbout(7, 9), first);
      expect(sent).toMatchObject({
        reply: { kind: 'text', text: 'Be brief. 7 9', cutOff: false },
        attempts: 1,
        tokens: { prompt: 1, completion: 1 },
        over: false,
      });
      expect(sent.tookMs).toBeGreaterThan(0);
      expect(stub.requests[0].body).toMatchObject({ seed: 42, top_k: -1, max_completion_tokens: 16 });
    });

    it('varies a request as it is told', async () => {
      const { sender, stub } = await sendTo(() => ({ kind: 'text', text: 'x' }));
      await sender.send(queryAbout(3), { ...first, variation: { sample: 2, room: 2, formless: false } });
      expect(stub.requests[0].body).toMatchObject({ seed: 44, temperature: 0.3, max_completion_tokens: 32 });
    });

    it('leaves out what its form does, and looks at the judge without, too', async () => {
      const form: RequestForm = { dialect: 'vllm', leaveOut: ['temperature', 'seed', 'max_completion_tokens'] };
      const { sender, stub } = await sendTo(() => ({ kind: 'text', text: 'x' }), { form });
      await sender.send(queryAbout(3), first);
      await sender.probe(queryAbout(3), 5_000);
      for (const { body } of stub.requests) {
        expect(body).toMatchObject({ top_p: 1, max_tokens: 16 });
        for (const field of ['temperature', 'seed', 'max_completion_tokens']) expect(body).not.toHaveProperty(field);
      }
      expect(stub.requests).toHaveLength(2);
    });

    it('gives each question its own answer, so many at once and no more', async () => {
      const { sender, stub } = await sendTo(
        async ({ images: shown }) => {
          const number = await numberOf(shown[0]);
          await later(number % 7);
          return { kind: 'text', text: String(number) };
        },
        { concurrency: 3 },
      );
      const numbers = Array.from({ length: 40 }, (_, i) => i);
      const replies = await Promise.all(numbers.map((number) => sender.send(queryAbout(number), first)));
      expect(replies.map(({ reply }) => (reply.kind === 'text' ? Number(reply.text) : reply))).toEqual(numbers);
      expect(stub.peak()).toBe(3);
    });

    it('says what went wrong, how often it tried, and never the key', async () => {
      const { sender } = await sendTo(() => openAiError(503, 'no room for key-0123456789'));
      const { reply, attempts, over } = await sender.send(queryAbout(1), first);
      expect(reply).toMatchObject({ kind: 'problem', problem: 'server_error', detail: 'HTTP 503 no room for [key]' });
      expect([attempts, over]).toEqual([2, false]);
    });

    it('ends with the time of the question', async () => {
      const { sender } = await sendTo(() => ({ kind: 'silent' }));
      const sent = await sender.send(queryAbout(1), { ...first, withinMs: 50 });
      expect(sent).toMatchObject({ reply: { kind: 'problem', problem: 'timeout' }, over: true });
    });

    it('can be called off while the judge is silent, before, and while it waits for its turn', async () => {
      const { sender, stub } = await sendTo(() => ({ kind: 'silent' }), { concurrency: 1 });
      const controller = new AbortController();
      const asked = [1, 2].map((number) => sender.send(queryAbout(number), first, controller.signal));
      while (stub.requests.length === 0) await later(5);
      controller.abort();
      asked.push(sender.send(queryAbout(3), first, controller.signal));
      for (const sent of await Promise.all(asked)) {
        expect(sent).toMatchObject({ reply: { kind: 'problem', problem: 'aborted' }, over: true });
      }
      expect(stub.requests).toHaveLength(1);
    });

    it('looks at the judge past a full queue, once', async () => {
      const { sender, stub } = await sendTo(
        ({ images: shown }) => (shown.length === 1 ? { kind: 'silent' } : openAiError(500, 'broken')),
        { concurrency: 1 },
      );
      const controller = new AbortController();
      const waiting = sender.send(queryAbout(1), first, controller.signal);
      while (stub.requests.length === 0) await later(5);
      expect(await sender.probe(queryAbout(1, 2), 5_000)).toMatchObject({
        kind: 'problem',
        problem: 'server_error',
      });
      expect(stub.requests.filter(({ images: shown }) => shown.length === 2)).toHaveLength(1);
      controller.abort();
      await waiting;
    });
  });
}
