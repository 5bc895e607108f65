import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CheckpointError, ConfigError } from '../../../../src/core/errors.js';
import { checkEmbeddingModel, EmbeddingModel, textReader } from '../../../../src/rewards/terms/clip/model.js';
import { cosine } from '../../../../src/rewards/terms/clip/model.js';
import { testFolders } from '../../../support/folder.js';
import { drawPicture, fixture, tinyClip, tinySiglip, type Picture } from './pictures.js';

const newFolder = testFolders('clip');

/** The tiny CLIP in another folder, with some files taken away. */
function tinyWithout(...names: readonly string[]): string {
  const folder = newFolder();
  cpSync(tinyClip, folder, { recursive: true });
  for (const name of names) rmSync(join(folder, name));
  return folder;
}

const weights = 'model.safetensors';

describe('a CLIP', () => {
  let model: EmbeddingModel;
  beforeAll(async () => {
    model = await EmbeddingModel.open(tinyClip);
  });
  afterAll(() => model.close());

  it("gives transformers' cosines", async () => {
    const { images, cosines } = fixture<{ images: readonly Picture[]; cosines: readonly number[][] }>('cosines.json');
    const prompts = fixture<readonly { prompt: string }[]>('tokens.json').map(({ prompt }) => prompt);
    for (const [i, picture] of images.entries()) {
      const image = await model.imageEmbedding(drawPicture(picture));
      for (const [j, prompt] of prompts.entries()) {
        expect(Math.abs(cosine(image, await model.textEmbedding(prompt)) - cosines[i][j])).toBeLessThan(1e-4);
      }
    }
  });

  it('computes a prompt once', () => {
    expect(model.textEmbedding('the sky')).toBe(model.textEmbedding('the sky'));
    expect(model.textEmbedding('the sea')).not.toBe(model.textEmbedding('the sky'));
  });
});

describe('opening a CLIP', () => {
  it.each([
    ['no config.json', () => tinyWithout('config.json'), /no config\.json/],
    ['no preprocessor_config.json', () => tinyWithout('preprocessor_config.json'), /no preprocessor_config\.json/],
    ['no tokenizer', () => tinyWithout('tokenizer.json'), /no tokenizer\.json/],
  ])('rejects %s', async (_name, make, message) => {
    const opening = EmbeddingModel.open(make());
    await expect(opening).rejects.toThrow(ConfigError);
    await expect(opening).rejects.toThrow(message);
  });

  it.each([
    ['no weights', () => own(tinyClip, { without: weights }), /there are no weights; allowed: .*model\.safetensors/],
    [
      'another activation',
      () => own(tinyClip, { config: { vision_config: { hidden_act: 'relu6' } } }),
      /vision_config\.hidden_act: found "relu6"; allowed: quick_gelu, gelu, gelu_pytorch_tanh/,
    ],
    [
      'pictures of another size than the model looks at',
      () => own(tinyClip, { config: { vision_config: { image_size: 40 } } }),
      /images are resized to 32x32 pixels .*, but the model reads 40x40/,
    ],
    [
      'weights of another shape',
      () => own(tinyClip, { config: { projection_dim: 9 } }),
      /tensor text_projection\.weight has shape \[8, 8\], but the config needs \[9, 8\]/,
    ],
    [
      'an end that the tokenizer does not write',
      () => own(tinyClip, { config: { text_config: { eos_token_id: 5 } } }),
      /reads the output at token 5 \(text_config\.eos_token_id\), but texts end with 657/,
    ],
    [
      'more tokens than the model has',
      () => own(tinyClip, { config: { text_config: { vocab_size: 600 } } }),
      /the tokenizer has 658 tokens, but the model has 600/,
    ],
    [
      'a SigLIP of pieces alone',
      () => own(tinySiglip, { without: 'tokenizer.json', with: 'spiece.model' }),
      /found spiece\.model, which is not read/,
    ],
    [
      'a SigLIP without anything that fills up',
      () => own(tinySiglip, { tokenizer: { pad_token: null } }),
      /the padding token is missing/,
    ],
    [
      'pictures that keep their shape',
      () => own(tinySiglip, { config: { model_type: 'siglip2' } }),
      /model_type "siglip2" is not supported; allowed: clip, siglip/,
    ],
  ])('rejects weights with %s, before they are read too', async (_name, make, message) => {
    const folder = make();
    const opening = EmbeddingModel.open(folder);
    await expect(opening).rejects.toThrow(message);
    await opening.catch((error: unknown) => {
      expect(error instanceof ConfigError || error instanceof CheckpointError).toBe(true);
    });
    expect(() => checkEmbeddingModel(folder)).toThrow(message);
  });

  it('has nothing against models that it opens', () => {
    for (const folder of [tinyClip, own(tinyClip), tinySiglip]) expect(() => checkEmbeddingModel(folder)).not.toThrow();
  });

  interface Change {
    readonly without?: string;
    readonly with?: string;
    readonly config?: Readonly<Record<string, unknown>>;
    readonly tokenizer?: Readonly<Record<string, unknown>>;
  }

  /** A model without graphs, with other files. Sections of config.json are merged. */
  function own(model: string, { without, with: more, config = {}, tokenizer = {} }: Change = {}): string {
    const folder = newFolder();
    cpSync(model, folder, { recursive: true });
    rmSync(join(folder, 'onnx'), { recursive: true, force: true });
    if (without !== undefined) rmSync(join(folder, without));
    if (more !== undefined) writeFileSync(join(folder, more), '');
    for (const [name, changes] of [
      ['config.json', config],
      ['tokenizer_config.json', tokenizer],
    ] as const) {
      const json = JSON.parse(readFileSync(join(folder, name), 'utf8')) as Record<string, unknown>;
      for (const [key, value] of Object.entries(changes)) {
        json[key] = typeof value === 'object' && value !== null ? { ...(json[key] as object), ...value } : value;
      }
      writeFileSync(join(folder, name), JSON.stringify(json));
    }
    return folder;
  }
});

describe('a SigLIP', () => {
  let model: EmbeddingModel;
  beforeAll(async () => {
    model = await EmbeddingModel.open(tinySiglip);
  });
  afterAll(() => model.close());

  it("gives transformers' cosines", async () => {
    const found = fixture<{ images: readonly Picture[]; cosines: readonly number[][] }>('siglip_cosines.json');
    const prompts = fixture<readonly { prompt: string }[]>('siglip_tokens.json').map(({ prompt }) => prompt);
    for (const [i, picture] of found.images.entries()) {
      const image = await model.imageEmbedding(drawPicture(picture));
      for (const [j, prompt] of prompts.entries()) {
        expect(Math.abs(cosine(image, await model.textEmbedding(prompt)) - found.cosines[i][j])).toBeLessThan(1e-5);
      }
    }
  });

  it('lowers letters and fills up on the side that its folder says', async () => {
    const folder = newFolder();
    cpSync(tinySiglip, folder, { recursive: true });
    const changed = (name: string, change: (json: Record<string, unknown>) => object): void => {
      const json = JSON.parse(readFileSync(join(folder, name), 'utf8')) as Record<string, unknown>;
      writeFileSync(join(folder, name), JSON.stringify({ ...json, ...change(json) }));
    };
    const idsOf = async (text: string): Promise<number[]> =>
      [...(await textReader(folder).encode(text)).ids].map(Number);
    const plain = await idsOf('the sky');
    expect(await idsOf('The SKY')).toEqual(plain);
    changed('tokenizer.json', () => ({ normalizer: null }));
    expect(await idsOf('the sky')).toEqual(plain);
    expect(await idsOf('The SKY')).not.toEqual(plain);
    changed('tokenizer_config.json', () => ({ do_lower_case: true, padding_side: 'left' }));
    expect(await idsOf('The SKY')).toEqual([...plain.slice(3), ...plain.slice(0, 3)]);
    const { mask } = await textReader(folder).encode('the sky');
    expect([...mask].join('')).toBe('000000000111');
  });

  it("reads prompts as transformers' tokenizer does, filled up to its length", async () => {
    const reader = textReader(tinySiglip);
    expect(reader.context).toBe(12);
    for (const { prompt, ids } of fixture<readonly { prompt: string; ids: number[] }[]>('siglip_tokens.json')) {
      expect([prompt, [...(await reader.encode(prompt)).ids].map(Number)]).toEqual([prompt, ids]);
    }
    // Nine words and the end.
    expect(await reader.unread('the sky '.repeat(6))).toBe(1);
    expect(await reader.unread('the sky')).toBe(0);
    const { mask } = await reader.encode('the sky');
    expect([...mask].join('')).toBe('111000000000');
  });
});

describe("CLIP's score", () => {
  it('knows no cosine of a vector without length', () => {
    expect(cosine(Float32Array.of(3, 4), Float32Array.of(4, 3))).toBeCloseTo(0.96, 12);
    expect(cosine(Float32Array.of(0, 0), Float32Array.of(4, 3))).toBeNaN();
  });
});
