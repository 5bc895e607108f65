import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { encodeSafetensors, readSafetensors } from '../../../src/core/safetensors.js';
import { captionedPixels, openCaptioned, type CaptionedImage } from '../../../src/data/captioned.js';
import { Datasets } from '../../../src/data/datasets.js';
import { cosine, EmbeddingModel } from '../../../src/rewards/terms/clip/model.js';
import { clipInit } from '../../../src/config/schema/model.js';
import { optimizer } from '../../../src/config/schema/training.js';
import { captionedData } from '../../../src/data/tiny/captioned.js';
import { clipNetwork } from '../../../src/train/pretraining/contrastive.js';
import { Pretraining } from '../../../src/train/pretraining/pretraining.js';
import { writeCheckpoint } from '../../support/checkpoint.js';
import { testFolders } from '../../support/folder.js';

const folders = testFolders('contrastive');
const tower = { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2 };
const BATCH = 16;
type ClipTraining = Pretraining<CaptionedImage, unknown>;

async function open(
  root: string,
  checkpoint: string | null = null,
  logitScale = 14.3,
  heldOut = ['validation/odd.jsonl'],
): Promise<ClipTraining> {
  const options = { seed: 1, sizes: { train: 64, validation: 16 } };
  await captionedData.makeIn(root, options);
  const place = join(captionedData.find(root, options)!, 'captioned');
  const listed = (files: readonly string[]) => files.map((path) => ({ path: join(place, path), coefficient: null }));
  const settings = {
    seed: 5,
    data: { train: listed(['train/plain.jsonl', 'train/odd.jsonl']), validation: listed(heldOut) },
  };
  const data = await Datasets.open(settings, ({ path }) => openCaptioned(path));
  const init = clipInit.parse({
    projection_dim: 12,
    logit_scale: logitScale,
    text_config: { ...tower, max_position_embeddings: 20 },
    vision_config: { ...tower, image_size: 16, patch_size: 8 },
  });
  const network = clipNetwork({ seed: 5, init, matchedCosine: 0.36, size: BATCH, checkpoint }, data.train);
  const training = await Pretraining.open(
    {
      optimizer: optimizer.parse({ learning_rate: 3e-3 }),
      schedule: { learningRate: 3e-3, warmupSteps: 0, schedule: 'constant' },
      sft: { batch_size: BATCH, patience: null, min_delta: 0 },
      data,
      validation: { prompts: 16 },
      session: { threads: 1 },
    },
    network,
  );
  if (checkpoint !== null) await training.restore(checkpoint);
  return training;
}

describe('training of CLIP', () => {
  it('measures over every whole batch of held-out images, the last one too', async () => {
    const root = folders();
    const evaluated = async (...files: string[]) => {
      const training = await open(root, null, 14.3, files);
      const metrics = await training.evaluate(0);
      await training.dispose();
      return metrics['validation/loss'];
    };
    const [plain, odd] = ['validation/plain.jsonl', 'validation/odd.jsonl'];
    const [first, second] = [await evaluated(plain), await evaluated(odd)];
    expect(first).not.toBeCloseTo(second, 4);
    expect(await evaluated(plain, odd)).toBeCloseTo((first + second) / 2, 6);
  });

  it('learns which belong together, continues from a checkpoint to the same bits, and writes what the reward reads', async () => {
    const root = folders();
    const training = await open(root);
    const losses: number[] = [];
    for (let iteration = 1; iteration <= 12; iteration++) {
      losses.push((await training.step(iteration))['policy/loss']);
    }
    const folder = join(folders(), 'model');
    writeCheckpoint(folder, await training.files(12));
    const own = `${readFileSync(join(folder, 'tokenizer.json'), 'utf8')}\n`;
    writeFileSync(join(folder, 'tokenizer.json'), own);
    const resumed = await open(root, folder);
    expect((await resumed.files(12))['tokenizer.json']).toBe(own);
    expect(await resumed.checksum()).toBe(await training.checksum());
    for (const one of [training, resumed]) await one.step(13);
    expect(await resumed.checksum()).toBe(await training.checksum());
    expect(losses.slice(-3).reduce((a, b) => a + b)).toBeLessThan(losses.slice(0, 3).reduce((a, b) => a + b) - 0.5);
    const { 'validation/matched_cosine': matched } = await resumed.evaluate(12);
    await training.dispose();

    // The mean over the held-out pairs, which are one batch, by the files that were written a step before.
    const model = await EmbeddingModel.open(folder);
    const options = { seed: 1, sizes: { train: 64, validation: 16 } };
    const held = await openCaptioned(join(captionedData.find(root, options)!, 'captioned/validation/odd.jsonl'));
    let sum = 0;
    for (let i = 0; i < BATCH; i++) {
      const sample = held.read(i);
      const text = await model.textEmbedding(sample.text);
      sum += cosine(await model.imageEmbedding(await captionedPixels(sample)), text);
    }
    const before = await open(root, folder);
    expect(sum / BATCH).toBeCloseTo((await before.evaluate(12))['validation/matched_cosine'], 5);
    expect(matched).not.toBeCloseTo(sum / BATCH, 5);
    for (const one of [resumed, before]) await one.dispose();
    await model.close();
  });

  it('multiplies cosines by 100 at most, and goes below it again', async () => {
    const root = folders();
    const weightsOf = async (training: ClipTraining, name: string): Promise<string> => {
      writeCheckpoint(join(root, name), await training.files(0));
      return join(root, name, 'policy.safetensors');
    };
    const scaleIn = (file: string): number => Math.exp(readSafetensors(file).get('logit_scale')!.data[0]);
    const training = await open(root, null, 150);
    expect(scaleIn(await weightsOf(training, 'begun'))).toBeCloseTo(100, 3);
    for (let iteration = 1; iteration <= 3; iteration++) await training.step(iteration);
    const trained = await weightsOf(training, 'trained');
    expect(scaleIn(trained)).toBeLessThan(99.9);
    await training.dispose();

    const weights = readSafetensors(trained);
    weights.get('logit_scale')!.data[0] = 5;
    writeFileSync(trained, encodeSafetensors(weights));
    const above = await open(root, join(root, 'trained'));
    await above.step(4);
    expect(scaleIn(await weightsOf(above, 'above'))).toBeCloseTo(100, 3);
    await above.dispose();
  });
});
