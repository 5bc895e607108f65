import { crc32, deflateSync } from 'node:zlib';
import sharp from 'sharp';
import { afterEach, describe, expect, it } from 'vitest';
import { DataError } from '../../../src/core/errors.js';
import type { Outcome } from '../../../src/rewards/score/types.js';
import { dial, until } from '../../core/http/client.js';
import { imageOf } from '../terms/term_contract.js';
import {
  byPicture,
  fingerprint,
  picture,
  place,
  post,
  postJson,
  postLines,
  readsAndJudges,
  rewardOf,
} from './served.js';

const here = place();
afterEach(() => here.close());

const scoredOne: Outcome = { kind: 'scored', value: 1, normalised: 1, parts: {} };

describe('POST /score', () => {
  it('gives every term, the weighted whole, and the numbers that older clients read', async () => {
    const { url } = await here.start(readsAndJudges);
    const { status, body } = await postJson(url, { prompt: 'a sign that says "STOP"', image: await picture(2) });
    const seen = fingerprint(imageOf(2));
    expect(status).toBe(200);
    expect(body).toEqual({
      reward: 'digest-of-the-test',
      key: null,
      outcome: {
        kind: 'scored',
        value: 0.6 * seen + 0.4 * (seen / 2),
        normalised: 0.6 * seen + 0.4 * (seen / 2),
        reason: null,
        detail: null,
        parts: {
          'ocr_confidence/seen': seen,
          'ocr_confidence/normalised': seen,
          'align_quality/seen': seen / 2,
          'align_quality/normalised': seen / 2,
        },
      },
      terms: {
        ocr_confidence: {
          weight: 0.6,
          kind: 'scored',
          value: 10 * seen,
          normalised: seen,
          parts: { 'ocr_confidence/seen': seen },
          reason: null,
          detail: null,
        },
        align_quality: {
          weight: 0.4,
          kind: 'scored',
          value: (10 * seen) / 2,
          normalised: seen / 2,
          parts: { 'align_quality/seen': seen / 2 },
          reason: null,
          detail: null,
        },
      },
      ocr_confidence: seen,
      vlm_score: seen / 2,
      combined_score: 0.6 * seen + 0.4 * (seen / 2),
    });
  });

  it('gives null, never a number, for what is unscored, and keeps what was obtained', async () => {
    const silent = { kind: 'unscored', reason: 'timeout', detail: 'no answer in time', parts: {} } as const;
    const { url } = await here.start(
      rewardOf({
        ocr_confidence: { weight: 0.6, score: byPicture('ocr_confidence') },
        align_quality: { weight: 0.4, score: () => silent },
      }),
    );
    const { body } = await postJson(url, { items: [{ prompt: 'x', image: await picture(2) }] });
    expect(body.items?.[0]).toMatchObject({
      vlm_score: null,
      combined_score: null,
      ocr_confidence: fingerprint(imageOf(2)),
      outcome: { kind: 'unscored', value: null, normalised: null, reason: 'timeout' },
      terms: { align_quality: { kind: 'unscored', value: null, normalised: null, detail: 'no answer in time' } },
    });
  });

  it.each([0.4, 0])(
    'answers one item with an error that may be retried where a term of weight %d is unscored',
    async (weight) => {
      // The client of Calligrapher's training counts an error, and what is no number, as 0.
      const score = () => ({ kind: 'unscored', reason: 'timeout', detail: 'the judge is away', parts: {} }) as const;
      const { url } = await here.start(
        rewardOf({
          ocr_confidence: { weight: 1 - weight, score: byPicture('ocr_confidence') },
          align_quality: { weight, score },
        }),
      );
      const { status, headers, body } = await postJson(url, { prompt: 'a sign', image: await picture(2) });
      expect(status).toBe(503);
      expect(headers.get('retry-after')).toBe('5');
      expect(body.error?.message).toContain('align_quality gave no score (timeout): the judge is away');
    },
  );

  it("takes the gray mask and the timestep of Calligrapher's newest client", async () => {
    const masks: unknown[] = [];
    const reward = rewardOf({ a: { weight: 1, score: ({ mask }) => (masks.push(mask), scoredOne) } });
    const { url } = await here.start(reward);
    const raw = { width: 2, height: 1, channels: 1 } as const;
    const gray = await sharp(Uint8Array.of(0, 255), { raw }).toColourspace('b-w').png().toBuffer();
    const item = {
      image: await picture(2),
      prompt: 'a sign',
      mask: gray.toString('base64'),
      timestep: 'step_12_t_500',
    };
    expect((await postJson(url, item)).status).toBe(200);
    expect(masks).toEqual([{ width: 2, height: 1, data: Uint8Array.of(0, 0, 0, 255, 255, 255) }]);
  });

  it('keeps the order of many items, and one that fails touches no other', async () => {
    const { url } = await here.start(
      rewardOf({
        slow_first: {
          weight: 1,
          score: async (item) => {
            if (item.instruction === '3') throw new DataError('this prompt has no labeled result');
            if (item.instruction === '4') throw new Error('secret-of-a-defect');
            if (item.instruction === '5') return { kind: 'scored', value: NaN, normalised: NaN, parts: {} };
            // The first ends last.
            await new Promise((resolve) => setTimeout(resolve, 40 - 5 * Number(item.instruction)));
            return byPicture('slow_first')(item);
          },
        },
      }),
    );
    const images = await Promise.all(Array.from({ length: 8 }, (_, i) => picture(i)));
    const items = images.map((image, i) => ({ key: `k${i}`, prompt: String(i), image: i === 6 ? '%%%' : image }));
    const { body } = await postJson(url, { items });
    const outcomes = (body.items ?? []).map(({ key, outcome }) => [
      key,
      outcome.kind,
      outcome.normalised,
      outcome.reason,
    ]);
    expect(outcomes).toEqual(
      items.map(({ key }, i) =>
        [3, 4, 5, 6].includes(i)
          ? [key, 'unscored', null, ['bad_request', 'server_error', 'out_of_range', 'bad_request'][i - 3]]
          : [key, 'scored', fingerprint(imageOf(i)), null],
      ),
    );
    expect(JSON.stringify(body)).not.toContain('secret-of-a-defect');
  });

  it('hands every field to the terms', async () => {
    const seen: unknown[] = [];
    const { url } = await here.start(
      rewardOf({
        all: {
          weight: 1,
          score: (item) => {
            seen.push({ ...item, key: 'its own' });
            return scoredOne;
          },
        },
      }),
    );
    await postJson(url, {
      key: 'a',
      instruction: 'make it red',
      source: `data:image/png;base64,${await picture(1)}`,
      image: (await picture(2)).replace(/.{76}/g, '$&\n'),
      truth: await picture(3),
      mask: await picture(4),
      answer: '<answer>(1)</answer>',
      expected: '(1)',
      finished: false,
    });
    await postJson(url, { prompt: 'a red cube', image: null });
    expect(seen).toEqual([
      {
        key: 'its own',
        instruction: 'make it red',
        source: imageOf(1),
        edited: imageOf(2),
        truth: imageOf(3),
        mask: imageOf(4),
        answer: '<answer>(1)</answer>',
        expected: '(1)',
        finished: false,
      },
      { key: 'its own', instruction: 'a red cube', source: null, edited: null, truth: null, finished: true },
    ]);
  });
});

describe('a request that is rejected', () => {
  const json = { 'content-type': 'application/json' };
  it.each<[string, number, string, string | Uint8Array<ArrayBuffer>, Record<string, string>]>([
    ['no JSON', 400, 'The body is not JSON', '{"prompt": ', json],
    ['nothing', 400, 'The body is not JSON', '', json],
    ['no UTF-8', 400, 'The body is not UTF-8', Uint8Array.from([0x7b, 0xff, 0x7d]), json],
    ['a list', 400, 'has to be an object', '[]', json],
    ['a null', 400, 'has to be an object', 'null', json],
    ['neither prompt nor instruction', 400, 'found neither', '{"image": "AAAA"}', json],
    ['both', 400, 'The item needs a prompt or an instruction', '{"prompt":"a","instruction":"b"}', json],
    ['items', 400, "Unknown 'items'", '{"items":[{"prompt":"a"}]}', json],
    ['a misspelt field', 400, "Unknown 'promt'; allowed: key, prompt, instruction, image", '{"promt":"x"}', json],
    ['a prototype', 400, "Unknown '__proto__'", '{"prompt":"a","__proto__":{"finished":false}}', json],
    ['a field of another type', 400, 'finished: ', '{"prompt":"a","finished":"yes"}', json],
    ['an image of another type', 400, 'image: ', '{"prompt":"a","image":{"path":"/x"}}', json],
    ['too much', 413, 'larger than 100000 bytes', `{"prompt":"${'a'.repeat(100_000)}"}`, json],
    ['a pickle', 415, 'Pickles', Uint8Array.from([0x80, 4, 0x95, 0, 0]), { 'content-type': 'application/x-pickle' }],
    ['raw bytes', 415, 'Pickles', 'abc', { 'content-type': 'application/octet-stream' }],
    ['a pickle called JSON', 415, 'Pickles', Uint8Array.from([0x80, 5, 0x95, 0, 0]), json],
    ['text', 415, "Content-Type 'text/plain' is not accepted", '{}', { 'content-type': 'text/plain' }],
    ['a packed body', 415, 'Content-Encoding gzip', '{}', { ...json, 'content-encoding': 'gzip' }],
    [
      'a form',
      415,
      "'multipart/form-data' is not accepted",
      'zzz',
      { 'content-type': 'multipart/form-data; boundary=x' },
    ],
    ['a web page', 403, 'web pages', '{"prompt":"a"}', { ...json, origin: 'http://evil.example' }],
  ])('%s', async (_what, status, message, body, headers) => {
    const scored: unknown[] = [];
    const { url } = await here.start(rewardOf({ a: { weight: 1, score: (item) => (scored.push(item), scoredOne) } }), {
      limits: { bodyBytes: 100_000 },
    });
    const replied = await post(url, body, headers);
    expect(replied.status).toBe(status);
    expect(Object.keys(replied.body)).toEqual(['error']);
    expect(replied.body.error?.message).toContain(message);
    expect(scored).toEqual([]);
    // The server goes on.
    expect((await postJson(url, { prompt: 'x' })).status).toBe(200);
  });
});

describe('POST /v1/score', () => {
  const refused = { kind: 'unscored', value: null, reason: 'bad_request' };
  const fixed = (seen: unknown[] = []) =>
    rewardOf({ a: { weight: 1, score: ({ instruction }) => (seen.push(instruction), scoredOne) } });

  it('answers each line when it is done, under its key, and names its reward in a header', async () => {
    const held = gate();
    const reward = rewardOf({
      a: { weight: 1, score: ({ instruction }) => (instruction === 'slow' ? held.score() : scoredOne) },
    });
    const { url } = await here.start(reward);
    const response = await fetch(`${url}/v1/score`, {
      method: 'POST',
      body: '{"key":"a","prompt":"slow"}\r\n\n{"key":"b","prompt":"fast"}',
      headers: { 'content-type': 'application/x-ndjson; charset=utf-8' },
    });
    expect(response.headers.get('x-editrl-reward')).toBe('digest-of-the-test');
    const text = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    expect(JSON.parse((await text.read()).value!)).toMatchObject({ key: 'b', outcome: { kind: 'scored' } });
    held.open();
    expect(JSON.parse((await text.read()).value!)).toMatchObject({ key: 'a', outcome: { kind: 'scored' } });
    expect((await text.read()).done).toBe(true);
  });

  it('leaves an item unscored that it cannot read, and scores the others', async () => {
    const { url } = await here.start(fixed());
    const { body } = await postLines(
      url,
      '{"key":"0","prompt":"a"}\n{"key":"1"}\n{"key":"2","prompt":"a","path":"/etc/passwd"}\n{"key":"3","prompt":"b"}\n',
    );
    expect(body.items).toHaveLength(4);
    const outcome = (key: string) => body.items?.find((item) => item.key === key)?.outcome;
    expect(outcome('0')).toMatchObject({ kind: 'scored' });
    expect(outcome('1')).toMatchObject({ ...refused, detail: expect.stringContaining('found neither') as string });
    expect(outcome('2')).toMatchObject({ ...refused, detail: expect.stringContaining("Unknown 'path'") as string });
    expect(outcome('3')).toMatchObject({ kind: 'scored' });
    expect(body.items?.find(({ key }) => key === '1')?.terms).toMatchObject({ a: refused });
  });

  it.each([
    ['without a key', '{"prompt":"b"}', 400, 'object with a key'],
    ['that is no JSON', '{"key":', 400, 'not JSON'],
    ['that is too large', `{"key":"1","prompt":"${'b'.repeat(2_000)}"}`, 413, 'larger than 1000 bytes'],
  ])('ends with an error at a line %s', async (_what, line, code, message) => {
    const seen: unknown[] = [];
    const { url } = await here.start(fixed(seen), { limits: { bodyBytes: 1_000 } });
    const { status, body } = await postLines(url, `{"key":"0","prompt":"a"}\n${line}\n{"key":"2","prompt":"c"}\n`);
    expect(status).toBe(200);
    expect(body.error).toMatchObject({ code, message: expect.stringContaining(message) as string });
    expect(seen).toEqual(['a']);
    expect((await postJson(url, { prompt: 'x' })).status).toBe(200);
  });

  it('ends with an error when its client sends nothing more', async () => {
    const { url } = await here.start(fixed(), { limits: { bodyWindowMs: 50 } });
    let push: (text: string) => void = () => undefined;
    const body = new ReadableStream({ start: (to) => void (push = (text) => to.enqueue(Buffer.from(text))) });
    const headers = { 'content-type': 'application/x-ndjson' };
    const asked = fetch(`${url}/v1/score`, { method: 'POST', body, duplex: 'half', headers });
    push('{"key":"0","prompt":"a"}\n{"key":"1",');
    expect(await (await asked).text()).toContain('Nothing of the body arrived within 0.05 s');
  });

  it.each([
    ['keeps the connection after a whole body', 0, false],
    ['drops the rest of a body, then closes the connection', 300, true],
  ])('that ends early %s', async (_what, pieces, isClosed) => {
    const { url } = await here.start(fixed());
    const { socket, text, closed } = dial(url);
    const line = 'not JSON\n';
    const piece = Buffer.alloc(65_536, '\n');
    // The last byte never arrives if there is more than the line.
    const length = line.length + pieces * piece.length + Math.sign(pieces);
    const head = `POST /v1/score HTTP/1.1\r\nhost: ${new URL(url).host}\r\ncontent-type: application/x-ndjson`;
    socket.write(`${head}\r\ncontent-length: ${length}\r\n\r\n${line}`);
    let sent = 0;
    const send = (): void => {
      if (sent < pieces && !socket.destroyed) socket.write(piece, () => (sent++, send()));
    };
    send();
    await until(() => text().includes('The body is not JSON'));
    const late = new Promise((resolve) => setTimeout(resolve, 2_500, false));
    expect(await Promise.race([closed.then(() => true), late])).toBe(isClosed);
    expect(sent).toBe(pieces);
    socket.destroy();
  });

  it('is rejected as other requests are', async () => {
    const { url } = await here.start(fixed(), { token: 'a-token-of-the-test' });
    expect((await postLines(url, '')).status).toBe(401);
    const authorization = 'Bearer a-token-of-the-test';
    expect((await postLines(url, '{}', { authorization, 'content-type': 'application/json' })).status).toBe(415);
    const packed = await postLines(url, 'x', { authorization, 'content-encoding': 'gzip' });
    expect(packed.body.error?.message).toContain('Content-Encoding gzip');
  });

  it('is not read while there is no room, however much is sent', async () => {
    const held = gate();
    const { url } = await here.start(rewardOf({ a: { weight: 1, score: held.score } }), { limits: { concurrency: 2 } });
    const items = Array.from({ length: 100 }, (_, i) => ({
      prompt: 'a',
      image: null,
      answer: 'x'.repeat(90_000),
      key: String(i),
    }));
    const asked = postJson(url, { items });
    await until(() => held.waiting.length === 2);
    await new Promise((resolve) => setTimeout(resolve, 100));
    const text = await (await fetch(`${url}/metrics`)).text();
    // Two items are scored, one waits, and one arrives.
    expect(Number(/^editrl_reward_held_bytes (\d+)$/m.exec(text)?.[1])).toBeLessThan(400_000);
    while (held.waiting.length > 0) {
      held.open();
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    expect((await asked).body.items).toHaveLength(100);
    const after = await (await fetch(`${url}/metrics`)).text();
    expect(after).toContain('editrl_reward_held_bytes 0\n');
  });
});

describe('images', () => {
  it.each<[string, string, string]>([
    ['a path', '/etc/passwd.png', 'neither base64 nor a data: URL'],
    ['a path that could be base64', '/etc/passwd+', 'PNG, JPEG or WebP'],
    ['an address', 'http://169.254.169.254/latest', 'neither base64 nor a data: URL'],
    ['a file address', 'file:///etc/passwd', 'neither base64 nor a data: URL'],
    ['a data URL without base64', 'data:image/svg+xml,<svg/>', 'must contain base64'],
    ['a drawing', Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>').toString('base64'), 'PNG, JPEG or WebP'],
    ['an empty text', '', 'neither base64 nor a data: URL'],
    ['half a PNG', Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAE', 'base64').toString('base64'), 'cannot decode'],
    ['a small file of many pixels', bomb(20_000, 20_000).toString('base64'), 'more than the 100000 that are decoded'],
    ['a small file of somewhat too many', bomb(400, 400).toString('base64'), 'more than the 100000 that are decoded'],
  ])('%s is unscored, as what it is', async (_what, image, message) => {
    const { url } = await here.start(readsAndJudges, { limits: { pixels: 100_000 } });
    const { status, body } = await postJson(url, { items: [{ prompt: 'x', image }] });
    expect(status).toBe(200);
    const item = body.items?.[0];
    expect(item).toMatchObject({ vlm_score: null, outcome: { kind: 'unscored', reason: 'bad_request' } });
    expect(item?.outcome.detail).toContain(message);
    const alone = await postJson(url, { prompt: 'x', image });
    expect(alone.status).toBe(400);
    expect(alone.body.error?.message).toContain(message);
  });
});

describe('who may ask', () => {
  it('rejects requests without the token, or with another, before it reads them', async () => {
    const token = 'a-token-of-the-test';
    const { url } = await here.start(readsAndJudges, { token });
    const item = { prompt: 'x', image: await picture(1) };
    const missing = await postJson(url, item);
    expect(missing.status).toBe(401);
    expect(missing.headers.get('www-authenticate')).toBe('Bearer');
    const wrong = await postJson(url, item, { authorization: `Bearer ${token}x` });
    expect(wrong.status).toBe(401);
    expect(JSON.stringify(wrong.body)).not.toContain(token);
    expect((await postJson(url, item, { authorization: `Bearer ${token}` })).status).toBe(200);
    expect((await fetch(`${url}/metrics`)).status).toBe(401);
    // That it is there may be known; what it scores with may not.
    expect(await (await fetch(`${url}/health`)).json()).toEqual({ status: 'ok' });
  });
});

/** A term that waits until it is let go. */
function gate() {
  const waiting: (() => void)[] = [];
  return {
    waiting,
    open: () => waiting.splice(0).forEach((go) => go()),
    score: () => new Promise<Outcome>((resolve) => waiting.push(() => resolve(scoredOne))),
  };
}

describe('too much at once', () => {
  it('is rejected with 429 and a time to come back', async () => {
    const held = gate();
    const { url } = await here.start(rewardOf({ a: { weight: 1, score: held.score } }), { limits: { requests: 2 } });
    const first = [postJson(url, { prompt: 'a' }), postJson(url, { prompt: 'b' })];
    await until(() => held.waiting.length === 2);
    const third = await postJson(url, { prompt: 'c' });
    expect(third).toMatchObject({ status: 429, body: { error: { type: 'RateLimitError', code: 429 } } });
    expect(third.headers.get('retry-after')).toBe('1');
    held.open();
    expect((await Promise.all(first)).map(({ status }) => status)).toEqual([200, 200]);
    const fourth = postJson(url, { prompt: 'd' });
    await until(() => held.waiting.length === 1);
    held.open();
    expect((await fourth).status).toBe(200);
  });

  it('is scored some at a time', async () => {
    const held = gate();
    const { url } = await here.start(rewardOf({ a: { weight: 1, score: held.score } }), { limits: { concurrency: 3 } });
    const asked = postJson(url, { items: Array.from({ length: 7 }, () => ({ prompt: 'a' })) });
    for (const expected of [3, 3, 1]) {
      await until(() => held.waiting.length === expected);
      // Whatever else is due begins while the server answers something else.
      for (let i = 0; i < 3; i++) await (await fetch(`${url}/health`)).text();
      expect(held.waiting.length).toBe(expected);
      held.open();
    }
    expect((await asked).body.items).toHaveLength(7);
  });

  it('waits behind one item of another request, not behind all of them', async () => {
    const begun: string[] = [];
    const held = gate();
    const reward = rewardOf({
      a: {
        weight: 1,
        score: ({ instruction }) => {
          begun.push(instruction);
          return held.score();
        },
      },
    });
    const { url } = await here.start(reward, { limits: { concurrency: 1 } });
    const many = postJson(url, { items: ['1', '2', '3', '4'].map((prompt) => ({ prompt })) });
    await until(() => held.waiting.length === 1);
    const one = postJson(url, { prompt: 'one' });
    await new Promise((resolve) => setTimeout(resolve, 50));
    for (let i = 0; i < 5; i++) {
      await until(() => held.waiting.length === 1);
      held.open();
    }
    expect((await Promise.all([many, one])).map(({ status }) => status)).toEqual([200, 200]);
    expect(begun).toEqual(['1', '2', 'one', '3', '4']);
  });

  it('is canceled when the client goes away', async () => {
    let calledOff = 0;
    const { url } = await here.start(
      rewardOf({
        a: {
          weight: 1,
          score: (_item, signal) =>
            new Promise((resolve) =>
              signal?.addEventListener('abort', () => {
                calledOff++;
                resolve(scoredOne);
              }),
            ),
        },
      }),
      { limits: { concurrency: 1 } },
    );
    const controller = new AbortController();
    const asked = fetch(`${url}/v1/score`, {
      method: 'POST',
      body: '{"key":"0","prompt":"a"}\n{"key":"1","prompt":"b"}\n',
      headers: { 'content-type': 'application/x-ndjson' },
      signal: controller.signal,
    });
    setTimeout(() => controller.abort(), 50);
    await expect(asked.then((response) => response.text())).rejects.toThrow('aborted');
    await until(() => calledOff === 1);
  });

  it('does not wait for a term that never ends', async () => {
    const { url } = await here.start(rewardOf({ a: { weight: 1, score: () => new Promise(() => undefined) } }), {
      limits: { scoreTimeoutMs: 50, concurrency: 1 },
    });
    const { body } = await postJson(url, { items: [{ prompt: 'a' }, { prompt: 'b' }] });
    expect(body.items?.map(({ outcome }) => outcome.reason)).toEqual(['timeout', 'timeout']);
  });
});

describe('a server', () => {
  it('counts what it did', async () => {
    const { url } = await here.start(readsAndJudges);
    await postJson(url, { items: [{ prompt: 'a', image: await picture(1) }, { prompt: 'b' }] });
    await postJson(url, { promt: 'a' });
    const text = await (await fetch(`${url}/metrics`)).text();
    for (const line of [
      'editrl_reward_requests_total{path="/v1/score",status="200"} 1',
      'editrl_reward_requests_total{path="/score",status="400"} 1',
      'editrl_reward_items_total{kind="scored"} 1',
      'editrl_reward_items_total{kind="zero_by_rule"} 1',
      'editrl_reward_term_outcomes_total{term="align_quality",kind="zero_by_rule",reason="undecodable"} 1',
      'editrl_reward_item_seconds_count 2',
    ]) {
      expect(text).toContain(`${line}\n`);
    }
  });

  it('reports a defect to its operator', async () => {
    const defects: unknown[] = [];
    const defect = new Error('a defect');
    const { url } = await here.start(
      rewardOf({
        a: {
          weight: 1,
          score: () => {
            throw defect;
          },
        },
      }),
      { onDefect: (error) => defects.push(error) },
    );
    await postJson(url, { prompt: 'a' });
    expect(defects).toEqual([defect]);
  });
});

/** A PNG of one color: a few kilobytes, however many pixels. */
function bomb(width: number, height: number): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2, 0, 0, 0], 8);
  const rows = deflateSync(Buffer.alloc(Math.min(height * (width * 3 + 1), 1_000_000)));
  const chunk = (type: string, body: Uint8Array): Buffer => {
    const out = Buffer.alloc(body.length + 12);
    out.writeUInt32BE(body.length, 0);
    out.write(type, 4, 'latin1');
    out.set(body, 8);
    out.writeUInt32BE(crc32(out.subarray(4, body.length + 8)), body.length + 8);
    return out;
  };
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  return Buffer.concat([signature, chunk('IHDR', header), chunk('IDAT', rows), chunk('IEND', new Uint8Array(0))]);
}
