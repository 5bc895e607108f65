/** What the judge's client does with a server, whatever its kind. */
import { afterEach, describe, expect, it } from 'vitest';
import { EndpointError } from '../../../src/core/errors.js';
import { JudgeClient, type JudgeClientOptions } from '../../../src/rewards/judge/client.js';
import { JudgeImages } from '../../../src/rewards/judge/images.js';
import type { JudgeQuery } from '../../../src/rewards/judge/judge.js';
import { MemoryJudgementStore } from '../../../src/rewards/judge/memory_store.js';
import { parseScores } from '../../../src/rewards/judge/parse.js';
import { twoScores } from '../../../src/rewards/judge/prompts.js';
import { waitUntilReady, type ReadinessOptions } from '../../../src/rewards/judge/readiness.js';
import { optionalFields, startingTraits } from '../../../src/rewards/judge/traits.js';
import { behaviourOf, completed, type Sent, type ServerKind } from './server_kinds.js';
import { fastClock, numberedImage, startStubJudge, type StubRequest } from './stub_judge.js';

const key = 'sk-right-5e8a21c7';
const images = new JudgeImages();

function question(name = 'test'): JudgeQuery {
  const shown = [1, 2].map((number) => images.prepare(numberedImage(number, 64), 'test'));
  return {
    key: `0/1/0/${name}`,
    messages: [{ role: 'user', parts: ['Grade this.', ...shown] }],
    format: twoScores,
    temperature: 0,
    maxCompletionTokens: 400,
    parse: (text, cutOff) => parseScores(text, 2, cutOff),
  };
}

/** The width in a PNG's header. */
function widthOf(url: string): number {
  return Buffer.from(url.slice(url.indexOf(',') + 1), 'base64').readUInt32BE(16);
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
          onNote,
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
        traits: { ...startingTraits.vllm, ...(kind.maxModelLen === null ? {} : { context: kind.maxModelLen }) },
      });
      const { client } = connect();
      expect(await client.canary()).toEqual({ ok: true });
      const judgement = await client.ask(question());
      expect(judgement).toMatchObject({ problem: null, scores: [7, 8], attempts: 1 });
      expect(judgement).not.toHaveProperty('leftOut');
      const sent = stub.requests.map(({ body }) => Object.keys(body));
      for (const keys of sent) {
        expect(keys).toEqual(expect.arrayContaining([...optionalFields, 'max_completion_tokens']));
      }
      expect(notes).toEqual([]);
    });

    it.each([...optionalFields])(
      'may refuse %s: that is found before the run, said once, and left out',
      async (field) => {
        const { stub, notes, ready, connect } = await serve(refusing(field));
        const { traits } = await ready();
        expect(traits).toMatchObject({ leftOut: [field], tokenLimit: 'max_completion_tokens' });
        expect(notes).toHaveLength(1);
        expect(notes[0]).toContain(`the judge '${kind.model}' does not take ${field}`);
        const { client } = connect({ traits });
        expect(await client.ask(question())).toMatchObject({ scores: [7, 8], attempts: 1, leftOut: [field] });
        expect(await client.canary()).toEqual({ ok: true });
        expect(stub.requests.filter(({ body }) => field in body)).toHaveLength(1);
      },
    );

    it('may refuse several fields and want the older name of the limit', async () => {
      const fields = ['max_completion_tokens', 'temperature', 'response_format', 'seed'];
      const { notes, ready } = await serve(refusing(...fields));
      const { traits } = await ready();
      expect(traits).toMatchObject({ leftOut: ['seed', 'response_format', 'temperature'], tokenLimit: 'max_tokens' });
      expect(notes).toEqual([
        `the judge '${kind.model}' does not take seed, response_format (json_schema), temperature: left out; takes max_tokens in place of max_completion_tokens`,
      ]);
    });

    it('may begin to refuse a field while it is asked: all further questions go without', async () => {
      const { stub, notes, connect } = await serve(refusing('top_k', 'temperature'));
      const { client } = connect();
      expect(await client.ask(question('first'))).toMatchObject({ scores: [7, 8], attempts: 3 });
      expect(await client.ask(question('second'))).toMatchObject({ scores: [7, 8], attempts: 1 });
      expect(notes).toEqual([`the judge '${kind.model}' does not take top_k, temperature: left out`]);
      expect(stub.requests).toHaveLength(4);
    });

    it('may want the newer name of the limit where it was asked by the older', async () => {
      const { connect } = await serve(refusing('max_tokens'));
      const { client } = connect({ traits: { ...startingTraits.vllm, tokenLimit: 'max_tokens' } });
      expect(await client.ask(question())).toMatchObject({ scores: [7, 8], attempts: 2 });
    });

    it('is given up where it refuses everything', async () => {
      const everything: Quirk = ({ body }) => kind.refuses(Object.keys(body).join(', '), 0);
      const { stub, ready, connect } = await serve(everything);
      await expect(ready()).rejects.toThrow(/the judge is not ready.*HTTP 4(00|22)/);
      const asked = stub.requests.length;
      expect(asked).toBeLessThanOrEqual(10);
      const { client } = connect();
      expect(await client.ask(question())).toMatchObject({ problem: 'bad_request', scores: [] });
      expect(stub.requests.length - asked).toBeLessThanOrEqual(10);
    });

    it.each(kind.thinking.map((sent, i) => [i + 1, sent] as const))(
      'may think (form %d): it is ready, and gets the tokens that its thoughts take',
      async (_form, cutOff) => {
        const { stub, notes, ready, connect } = await serve((request) => (limitOf(request) < 3000 ? cutOff : null));
        const { traits } = await ready();
        expect(stub.requests).toHaveLength(1);
        expect(notes).toEqual([expect.stringContaining('thinks before it answers')]);
        expect(notes[0]).toContain('reward.max_reply_tokens');
        const { client } = connect({ traits });
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
      'is asked with smaller images where the context is too short (wording %d)',
      async (_wording, overflow) => {
        const { stub, connect } = await serve(({ images: shown }) => (widthOf(shown[0]) > 40 ? overflow : null));
        expect(await connect().client.ask(question())).toMatchObject({ problem: null, scores: [7, 8], attempts: 2 });
        expect(stub.requests.map(({ images: shown }) => shown.map(widthOf))).toEqual([
          [64, 64],
          [32, 32],
        ]);
      },
    );

    it('finds a wrong key, before the run and in it', async () => {
      const { ready, connect } = await serve();
      const error: unknown = await ready({ apiKey: 'sk-wrong-key' }).catch((cause: unknown) => cause);
      expect(error).toBeInstanceOf(EndpointError);
      expect(error).toMatchObject({ next: 'Export OPENAI_API_KEY with a key that the server takes.', exitCode: 3 });
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
        expect((await ready({ model: 'a-typo', alias: true })).traits).not.toHaveProperty('context');
        return;
      }
      const { client } = connect({ model: 'a-typo' });
      expect(await client.ask(question())).toMatchObject({ problem: 'bad_request', attempts: 1 });
      await expect(ready({ model: 'a-typo', alias: true })).rejects.toThrow(/does not serve 'a-typo'.*, and HTTP 404/);
    });

    it('answers by another name only where that is allowed, and says how', async () => {
      const { ready, connect } = await serve(() => null, kind.alias);
      const looking = ready();
      await expect(looking).rejects.toThrow(`another model, "${kind.alias}"`);
      await expect(looking).rejects.toThrow(`set reward.model_alias: ["${kind.alias}"]`);
      expect(await connect().client.ask(question())).toMatchObject({ problem: 'server_error', scores: [] });
      await expect(ready({ alias: ['another', 'third'] })).rejects.toThrow(kind.alias);
      for (const alias of [true, ['another', kind.alias]]) {
        expect(await ready({ alias })).toMatchObject({ traits: startingTraits.vllm });
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
      expect(await ready()).toMatchObject({ traits: startingTraits.vllm });
      expect(await connect().client.ask(question())).toMatchObject({ problem: null, scores: [7, 8], attempts: 2 });
    });
  });
}
