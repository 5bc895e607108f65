import { testServices } from '../term_services.js';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { DataError, EngineError } from '../../../../src/core/errors.js';
import type { RgbImage } from '../../../../src/core/images/image.js';
import type { Judge } from '../../../../src/rewards/judge/judge.js';
import type { OcrEngine, OcrLine } from '../../../../src/rewards/terms/ocr/engine.js';
import { borrowEngine } from '../../../../src/rewards/terms/ocr/term.js';
import * as tesseract from '../../../../src/rewards/terms/ocr/tesseract.js';
import type { TermServices } from '../../../../src/rewards/terms/term.js';
import { ocr, ocrConfidence } from '../../../../src/rewards/terms/ocr.js';
import type { JudgeItem, Judgement, UnscoredReason } from '../../../../src/rewards/score/types.js';
import { drawSign } from '../../../../src/data/tiny/signs.js';
import { termContract } from '../term_contract.js';

function judgeThat(scores: readonly number[], problem: UnscoredReason | null = null): Judge {
  return {
    ask: async ({ key }): Promise<Judgement> => ({
      key,
      requestHash: 'hash',
      model: 'judge',
      text: '',
      problem,
      scores,
      attempts: 1,
      latencyMs: 1,
    }),
  };
}

const services = (judge: Judge = judgeThat([8, 6])): TermServices => testServices(judge);

const item = (edited: RgbImage | null, instruction = 'a sign that says "HELLO"'): JudgeItem => ({
  key: '5/12/3',
  instruction,
  source: null,
  edited,
  truth: null,
  finished: true,
});

/** Puts an engine in tesseract's place that reads these lines, or fails. */
function engineThat(read: OcrEngine['read'] | readonly OcrLine[]) {
  const close = vi.fn(async () => undefined);
  const engine: OcrEngine = { read: typeof read === 'function' ? read : async () => ({ lines: read }), close };
  const open = vi.spyOn(tesseract, 'openTesseract').mockResolvedValue(engine);
  return { open, close };
}

vi.mock('../../../../src/rewards/terms/ocr/tesseract.js', { spy: true });
afterEach(() => {
  vi.mocked(tesseract.openTesseract).mockReset();
});

const defaults = <Fields extends z.ZodRawShape>(fields: Fields, given: object = {}) => z.object(fields).parse(given);
const sign = drawSign('HELLO');

const reads = [{ text: 'STOP', confidence: 0.5 }];
for (const kind of [ocr, ocrConfidence]) {
  termContract(kind.name, () => {
    engineThat(reads);
    return (kind as typeof ocr).create(defaults(ocr.fields), services());
  });
}
describe('the confidence of several lines', () => {
  it("is their plain mean, as Calligrapher's server gives it, or weighted by their lengths", async () => {
    const line = (text: string, confidence: number): OcrLine => ({ text, confidence });
    engineThat([line('HELLO', 0.9), line('A', 0.3), line('  ', 0)]);
    const scoreOf = async (kind: typeof ocr | typeof ocrConfidence, instruction?: string): Promise<unknown> => {
      const term = await kind.create(defaults(kind.fields), services());
      const outcome = await term.score(item(sign, instruction));
      await term.close();
      return outcome.kind === 'scored' ? outcome.value : outcome;
    };
    // It asks for no quotation.
    expect(await scoreOf(ocrConfidence, 'a street')).toBeCloseTo(0.6, 12);
    expect(await scoreOf(ocr)).toBeCloseTo(4.8 / 6, 12);
  });
});

it.each([ocr, ocrConfidence])("$name reads nothing outside an item's mask", async (kind) => {
  const shown: RgbImage[] = [];
  engineThat(async (image) => {
    shown.push(image);
    return { lines: reads };
  });
  const term = await (kind as typeof ocr).create(defaults(kind.fields), services());
  const { width, height } = sign;
  await term.score({ ...item(sign), mask: { width, height, data: new Uint8Array(sign.data.length) } });
  expect(shown).toEqual([{ width, height, data: new Uint8Array(sign.data.length).fill(255) }]);
  await term.close();
});

describe('ocr', () => {
  it('multiplies similarity and confidence', async () => {
    engineThat([{ text: 'HELO', confidence: 0.5 }]);
    const term = await ocr.create(defaults(ocr.fields), services());
    expect(await term.score(item(sign))).toEqual({
      kind: 'scored',
      value: 0.4,
      normalised: 0.4,
      parts: { 'ocr/similarity': 0.8, 'ocr/confidence': 0.5 },
    });
    await term.close();
  });

  it.each([['a sign that says HELLO'], ['a sign that says ""']])(
    'names the prompt that quotes nothing: %s',
    async (prompt) => {
      engineThat([]);
      const term = await ocr.create(defaults(ocr.fields), services());
      for (const edited of [sign, null]) {
        await expect(term.score(item(edited, prompt))).rejects.toThrow(DataError);
        await expect(term.score(item(edited, prompt))).rejects.toMatchObject({ where: '5/12/3' });
      }
      await term.close();
    },
  );

  it('is 0 by rule if the answer does not decode', async () => {
    engineThat([]);
    const term = await ocr.create(defaults(ocr.fields), services());
    expect(await term.score(item(null))).toEqual({ kind: 'zero_by_rule', reason: 'undecodable', parts: {} });
    await term.close();
  });

  it('is unscored, never 0, where the engine fails or the run gives up', async () => {
    const controller = new AbortController();
    engineThat(async (_, signal) => {
      signal?.throwIfAborted();
      throw new EngineError('the thread ended');
    });
    const term = await ocr.create(defaults(ocr.fields), services());
    expect(await term.score(item(sign), controller.signal)).toEqual({
      kind: 'unscored',
      reason: 'server_error',
      detail: '5/12/3: the thread ended',
      parts: {},
    });
    controller.abort();
    expect(await term.score(item(sign), controller.signal)).toMatchObject({ kind: 'unscored', reason: 'aborted' });
    await term.close();
  });

  it.each([
    ['ocr_model', { backend: 'paddle' }],
    ['ocr_model', { ocr_model: 'models/pp' }],
    ['language_data', { backend: 'paddle', ocr_model: 'models/pp', language_data: 'data' }],
  ])('finds a contradiction at %s in %j', (field, given) => {
    expect(ocr.conflict?.(defaults(ocr.fields, given))).toMatchObject({ field });
  });

  it('takes what fits together, and rejects a language that is a path', () => {
    for (const given of [
      {},
      { backend: 'paddle', ocr_model: 'models/pp' },
      { language: 'eng+deu', language_data: 'data' },
    ]) {
      expect(ocr.conflict?.(defaults(ocr.fields, given))).toBeNull();
    }
    expect(() => defaults(ocr.fields, { language: '../eng' })).toThrow();
  });
});

describe('sharing an engine', () => {
  const settings = { backend: 'tesseract', language: 'eng', languageData: null, workers: 2, model: null } as const;

  it('opens one for equal settings and closes it with the last borrower', async () => {
    const { open, close } = engineThat([]);
    const [first, second, other] = await Promise.all([
      borrowEngine(settings),
      borrowEngine({ ...settings }),
      borrowEngine({ ...settings, workers: 1 }),
    ]);
    expect(open).toHaveBeenCalledTimes(2);
    await other.close();
    expect(close).toHaveBeenCalledTimes(1);
    await first.close();
    await first.close();
    expect(close).toHaveBeenCalledTimes(1);
    await second.close();
    expect(close).toHaveBeenCalledTimes(2);
    const again = await borrowEngine(settings);
    expect(open).toHaveBeenCalledTimes(3);
    await again.close();
  });
});
