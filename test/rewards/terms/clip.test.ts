import { afterEach, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { EngineError } from '../../../src/core/errors.js';
import { EmbeddingModel } from '../../../src/rewards/terms/clip/model.js';
import { clip } from '../../../src/rewards/terms/clip.js';
import { drawPicture, fixture, tinyClip, tinySiglip, type Picture } from './clip/pictures.js';
import { termContract, wholeItem } from './term_contract.js';
import { testServices } from './term_services.js';

const settings = z.strictObject(clip.fields);
const make = (): ReturnType<typeof clip.create> => clip.create(settings.parse({ model: tinyClip }), testServices());

termContract('clip', make);

describe('the term clip', () => {
  afterEach(() => vi.restoreAllMocks());

  it('compares the image with the original prompt', async () => {
    const term = await make();
    const edited = drawPicture({ width: 64, height: 48, kind: 'bands' });
    // By transformers: the first image and the first prompt of the fixtures.
    const item = wholeItem({ edited, instruction: 'a photo of a red circle', answer: 'a rewritten prompt' });
    const outcome = await term.score(item);
    await term.close();
    const { cosines } = fixture<{ cosines: readonly number[][] }>('cosines.json');
    if (outcome.kind !== 'scored') throw new Error(outcome.kind);
    expect(outcome.value).toBeCloseTo((cosines[0][0] + 1) / 2, 4);
    expect(outcome.normalised).toBe(outcome.value);
    expect(outcome.parts).toEqual({ 'clip/cosine': expect.closeTo(cosines[0][0], 4) as number, 'clip/at_limit': 0 });
  });

  it.each([
    // scale, cosine, value, normalised, at a limit
    ['half', 0.4, 0.7, 0.7, 0],
    ['half', 0.45, 0.725, 0.725, 0],
    ['half', 0, 0.5, 0.5, 0],
    ['half', -0.6, 0.2, 0.2, 0],
    ['half', -1, 0, 0, 0],
    ['half', 1, 1, 1, 0],
    ['clipscore', 0.3, 0.3, 0.75, 0],
    ['clipscore', 0.41, 0.41, 1, 1],
    ['clipscore', 0.45, 0.45, 1, 1],
    ['clipscore', -0.1, 0, 0, 1],
    ['cosine', 0.4, 0.4, 0.4, 0],
    ['cosine', 0.45, 0.45, 0.45, 0],
    ['cosine', -0.1, 0, 0, 1],
    ['cosine', 1, 1, 1, 0],
  ] as const)(
    'by scale %s a cosine of %d is worth %d, normalised %d',
    async (scale, cosine, value, normalised, limit) => {
      const term = await clip.create(settings.parse({ model: tinyClip, scale }), testServices());
      vi.spyOn(EmbeddingModel.prototype, 'textEmbedding').mockResolvedValueOnce(Float32Array.of(1, 0));
      const image = Float32Array.of(cosine, Math.sqrt(1 - cosine ** 2));
      vi.spyOn(EmbeddingModel.prototype, 'imageEmbedding').mockResolvedValueOnce(image);
      const outcome = await term.score(wholeItem());
      await term.close();
      if (outcome.kind !== 'scored') throw new Error(outcome.kind);
      expect(outcome.value).toBeCloseTo(value, 6);
      expect(outcome.normalised).toBeCloseTo(normalised, 6);
      expect(outcome.normalised).toBeLessThanOrEqual(1);
      expect(outcome.normalised).toBeGreaterThanOrEqual(0);
      expect(outcome.parts['clip/at_limit']).toBe(limit);
    },
  );

  it('reports once that a prompt is longer than the model reads', async () => {
    const notes: string[] = [];
    const services = { ...testServices(), onNote: (note: string) => notes.push(note) };
    const term = await clip.create(settings.parse({ model: tinyClip }), services);
    await term.score(wholeItem({ key: '1/0/0' }));
    expect(notes).toEqual([]);
    const instruction = 'a '.repeat(200);
    for (const key of ['1/1/0', '1/2/0']) {
      expect(await term.score(wholeItem({ key, instruction }))).toMatchObject({ kind: 'scored' });
    }
    await term.close();
    expect(notes).toEqual([
      'clip reads 20 tokens of a prompt and ignores the rest: it ignores the last 182 tokens of the prompt of 1/1/0 (reported once)',
    ]);
  });

  it('gives an answer without an image nothing, by rule', async () => {
    const term = await make();
    expect(await term.score(wholeItem({ edited: null }))).toMatchObject({
      kind: 'zero_by_rule',
      reason: 'undecodable',
    });
    await term.close();
  });

  it('gives no number where the model gives none', async () => {
    const term = await make();
    const embedding = vi.spyOn(EmbeddingModel.prototype, 'imageEmbedding');
    embedding.mockResolvedValueOnce(new Float32Array(8).fill(NaN));
    expect(await term.score(wholeItem())).toMatchObject({ kind: 'unscored', reason: 'out_of_range' });
    embedding.mockRejectedValueOnce(new EngineError('the device is gone'));
    expect(await term.score(wholeItem())).toMatchObject({ kind: 'unscored', reason: 'server_error' });
    expect(await term.score(wholeItem())).toMatchObject({ kind: 'scored' });
    await term.close();
    expect(await term.score(wholeItem())).toMatchObject({ kind: 'unscored', reason: 'aborted' });
  });

  it('takes the weights of a Hub model from where it was fetched to', async () => {
    const asked: unknown[] = [];
    const modelFolder = (reference: unknown): string => {
      asked.push(reference);
      return tinySiglip;
    };
    const term = await clip.create(settings.parse({}), { ...testServices(), modelFolder });
    expect(asked).toEqual([{ hub: 'openai/clip-vit-base-patch32', revision: 'main' }]);
    const { images, cosines } = fixture<{ images: readonly Picture[]; cosines: readonly number[][] }>(
      'siglip_cosines.json',
    );
    const item = wholeItem({ edited: drawPicture(images[0]), instruction: 'a photo of a red circle' });
    expect(await term.score(item)).toMatchObject({
      parts: { 'clip/cosine': expect.closeTo(cosines[0][0], 5) as number },
    });
    await term.close();
  });
});
