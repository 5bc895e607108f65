/** What the judge's client does with a server, whatever its kind. */
import { afterEach, describe, expect, it } from 'vitest';
import { EndpointError } from '../../../src/core/errors.js';
import { JudgeClient, type JudgeClientOptions } from '../../../src/rewards/judge/client.js';
import { judgeImage } from '../../../src/rewards/judge/images.js';
import type { JudgeQuery } from '../../../src/rewards/judge/judge.js';
import { MemoryJudgementStore } from './memory_store.js';
import { parseScores } from '../../../src/rewards/judge/parse.js';
import { twoScores } from '../../../src/rewards/judge/prompts.js';
import { waitUntilReady, type ReadinessOptions } from '../../../src/rewards/judge/readiness.js';
import { leavableFields } from '../../../src/rewards/judge/dialect.js';
import { behaviourOf, completed, type Sent, type ServerKind } from './server_kinds.js';
import { fastClock, numberedImage, startStubJudge, type StubRequest } from './stub_judge.js';

const key = 'sk-right-5e8a21c7';

function question(name = 'test'): JudgeQuery {
  const shown = [1, 2].map((number) => judgeImage(numberedImage(number, 64), 'test'));
  return {
    key: `0/1/0/${name}`,
    messages: [{ role: 'user', parts: ['Grade this.', ...shown] }],
    format: twoScores,
    temperature: 0,
    maxCompletionTokens: 400,
    parse: (text, cutOff) => parseScores(text, 2, cutOff),
  };
}

function limitOf({ body }: StubRequest): number {
  return Number(body['max_completion_tokens'] ?? body['max_tokens']);
}

/** What a server does besides what its kind does; null for nothing. */
type Quirk = (request: StubRequest) => Sent | null;

export function serverContract(kind: ServerKind): void {
  describe(`a judge served by ${kind.name}`, () => {
    const closing: (() => Promise<void>)[] = [];
    afterEach(async () => {
      for (const close of closing.splice(0).reverse()) await close();
    });

    async function serve(quirk: Quirk = () => null, answersAs = kind.model) {
      const isRight = (authorization: string | undefined): boolean => authorization === `Bearer ${key}`;
      const answer = (request: StubRequest): Sent => {
        if (!isRight(request.authorization)) return kind.wrongKey;
        const model = String(request.body['model']);
        if (model !== kind.model && kind.wrongModel !== null) return kind.wrongModel(model);
        const scores = { message: { content: '{"score": [7, 8], "reasoning": "as told"}' }, finish_reason: 'stop' };
        return quirk(request) ?? completed(answersAs, scores);
      };
      const stub = await startStubJudge((request) => behaviourOf(answer(request)), {
        models: (authorization) =>
          behaviourOf(kind.openListing || isRight(authorization) ? [200, kind.listing] : kind.wrongKey),
      });
      closing.push(stub.close);
      const notes: string[] = [];
      const onNote = (note: string): unknown => notes.push(note);
      const ready = (options: Partial<ReadinessOptions> & { readonly model?: string } = {}) => {
        const { model = kind.model, ...rest } = options;
        return waitUntilReady(stub.url, model, { maxWaitS: 0, apiKey: key, clock: fastClock(100), onNote, ...rest });
      };
      const connect = (options: Partial<JudgeClientOptions> = {}) => {
        const clock = fastClock(100);
        const client = new JudgeClient({
          endpoints: [stub.url],
          model: kind.model,
          store: new MemoryJudgementStore(),
          apiKey: key,
          clock,
          random: () => 0,
          policy: { attemptTimeoutMs: 2_000_000 },
          queryTimeoutMs: 5_000_000,
          ...options,
        });
        closing.push(() => client.close());
        return { client, clock };
      };
      return { stub, notes, ready, connect };
    }

    /** Refuses a field in the server's own words. */
    const refusing =
      (...fields: readonly string[]): Quirk =>
      ({ body }) => {
        const field = fields.find((name) => name in body);
        return field === undefined ? null : kind.refuses(field, body[field]);
      };

    it('is ready, shows life, and is asked with all fields', async () => {
      const { stub, notes, ready, connect } = await serve();
      expect(await ready()).toEqual({
        endpoints: [stub.url],
        context: kind.maxModelLen,
      });
      const { client } = connect();
      expect(await client.canary()).toEqual({ ok: true });
      const judgement = await client.ask(question());
      expect(judgement).toMatchObject({ problem: null, scores: [7, 8], attempts: 1 });
      const sent = stub.requests.map(({ body }) => Object.keys(body));
      for (const keys of sent) {
        expect(keys).toEqual(expect.arrayContaining([...leavableFields]));
      }
      expect(notes).toEqual([]);
    });

    it.each([...leavableFields])('may reject %s: that is named with the setting that leaves it out', async (field) => {
      const { stub, ready, connect } = await serve(refusing(field));
      const setting = `reward.leave_out: ['${field}']`;
      await expect(ready()).rejects.toMatchObject({ next: expect.stringContaining(setting) as string });
      expect((await connect().client.ask(question())).detail).toContain(setting);
      const refused = stub.requests.length;
      await ready({ leaveOut: [field] });
      const { client } = connect({ leaveOut: [field] });
      expect(await client.ask(question())).toMatchObject({ scores: [7, 8], attempts: 1 });
      expect(await client.canary()).toEqual({ ok: true });
      for (const { body } of stub.requests.slice(refused)) expect(body).not.toHaveProperty(field);
    });

    it.each(kind.thinking.map((sent, i) => [i + 1, sent] as const))(
      'may think (form %d): it is ready, and gets the tokens that its thoughts take',
      async (_form, cutOff) => {
        const { stub, notes, ready, connect } = await serve((request) => (limitOf(request) < 3000 ? cutOff : null));
        const { context } = await ready();
        expect(stub.requests).toHaveLength(1);
        expect(notes).toEqual([expect.stringContaining('thinks before it answers')]);
        expect(notes[0]).toContain('reward.max_reply_tokens');
        const { client } = connect(context === null ? {} : { context });
        expect(await client.canary()).toEqual({ ok: true });
        expect(await client.ask(question())).toMatchObject({ problem: null, scores: [7, 8], attempts: 3 });
        expect(stub.requests.slice(2).map(limitOf)).toEqual([
          400,
          1600,
          Math.min(6400, (kind.maxModelLen ?? Infinity) / 2),
        ]);
      },
    );

    it.each(kind.thinking.map((sent, i) => [i + 1, sent] as const))(
      'that thinks without end (form %d) gives no scores, least of all from its thoughts',
      async (_form, cutOff) => {
        const { connect } = await serve(() => cutOff);
        const judgement = await connect().client.ask(question());
        expect(judgement).toMatchObject({ problem: 'truncated', scores: [], attempts: 3 });
      },
    );

    it.each(kind.overflows.map((sent, i) => [i + 1, sent] as const))(
      'is asked once where the context is too short (wording %d)',
      async (_wording, overflow) => {
        const { stub, connect } = await serve(() => overflow);
        const judgement = await connect().client.ask(question());
        expect(judgement).toMatchObject({ problem: 'bad_request', scores: [], attempts: 1 });
        expect(judgement.detail).not.toContain('leave_out');
        expect(stub.requests).toHaveLength(1);
      },
    );

    it('is wrong where its context cannot hold the longest reply', async () => {
      const { stub, ready } = await serve();
      const length = kind.maxModelLen ?? Infinity;
      const looking = ready({ replyTokens: 32_768 });
      if (length > 32_768) await looking;
      else {
        await expect(looking).rejects.toThrow(`its context has ${length} tokens`);
        for (const options of [{ alias: true }, { probe: 'listing' as const }]) {
          await expect(ready({ replyTokens: 32_768, ...options })).rejects.toThrow(`its context has ${length} tokens`);
        }
        expect(stub.requests).toHaveLength(0);
      }
    });

    it('finds a wrong key, before the run and in it', async () => {
      const { ready, connect } = await serve();
      const error: unknown = await ready({ apiKey: 'sk-wrong-key' }).catch((cause: unknown) => cause);
      expect(error).toBeInstanceOf(EndpointError);
      expect(error).toMatchObject({ next: 'Export OPENAI_API_KEY with a key that the server accepts.', exitCode: 3 });
      const { client } = connect({ apiKey: 'sk-wrong-key' });
      expect(await client.ask(question())).toMatchObject({ problem: 'bad_request', attempts: 1 });
      expect(await client.canary()).toMatchObject({ ok: false });
    });

    it('finds a wrong model, and names those that there are', async () => {
      const { ready, connect } = await serve();
      const looking = ready({ model: 'a-typo' });
      await expect(looking).rejects.toThrow(`it does not serve 'a-typo'; it serves: '${kind.model}'`);
      await expect(looking).rejects.toMatchObject({
        next: expect.stringContaining('reward.model_alias: true') as string,
      });
      if (kind.wrongModel === null) {
        // It answers whatever it is called, and only a config that expects other names may mean that.
        expect(await ready({ model: 'a-typo', alias: true })).toMatchObject({ context: null });
        return;
      }
      const { client } = connect({ model: 'a-typo' });
      expect(await client.ask(question())).toMatchObject({ problem: 'bad_request', attempts: 1 });
      await expect(ready({ model: 'a-typo', alias: true })).rejects.toThrow(/does not serve 'a-typo'.*, and HTTP 404/);
    });

    it('answers by another name only where that is allowed, and explains how', async () => {
      const { ready, connect } = await serve(() => null, kind.alias);
      const looking = ready();
      await expect(looking).rejects.toThrow(`the model "${kind.alias}"`);
      await expect(looking).rejects.toThrow(`set reward.model_alias: ["${kind.alias}"]`);
      expect(await connect().client.ask(question())).toMatchObject({ problem: 'server_error', scores: [] });
      await expect(ready({ alias: ['another', 'third'] })).rejects.toThrow(kind.alias);
      for (const alias of [true, ['another', kind.alias]]) {
        expect(await ready({ alias })).toMatchObject({ endpoints: [expect.any(String)] });
        const { client } = connect({ alias });
        expect(await client.canary()).toEqual({ ok: true });
        expect(await client.ask(question())).toMatchObject({ scores: [7, 8], attempts: 1 });
      }
    });

    it.each(kind.filtered.map((sent, i) => [i + 1, sent] as const))(
      'is not asked again where it refuses to answer (form %d)',
      async (_form, filtered) => {
        const { connect } = await serve(() => filtered);
        expect(await connect().client.ask(question())).toMatchObject({ problem: 'refused', scores: [], attempts: 1 });
      },
    );

    it('is left alone for as long as it says, and asked the same again', async () => {
      const { connect } = await serve(({ asked }) => (asked === 0 ? kind.rateLimited : null));
      const { client, clock } = connect();
      expect(await client.ask(question())).toMatchObject({ problem: null, scores: [7, 8], attempts: 2 });
      // Its clock goes on while a reply is read.
      expect(clock.waits.filter((ms) => ms > 6_900 && ms <= 7_000)).toHaveLength(1);
    });

    it('is waited for while it is overloaded', async () => {
      const { ready, connect } = await serve(({ asked }) => (asked === 0 ? kind.overloaded : null));
      await expect(ready()).rejects.toThrow(/503/);
      await ready();
      expect(await connect().client.ask(question())).toMatchObject({ problem: null, scores: [7, 8], attempts: 2 });
    });
  });
}
