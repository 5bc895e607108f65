/** The recipe `image_tokenizer`: a VQ image tokenizer trained on pixels. */
import { z } from 'zod';
import { tokenizerAlgorithm } from '../../schema/algorithm.js';
import { imageData } from '../../schema/data.js';
import { section } from '../../schema/mark.js';
import { engine, imageTokenizerInit } from '../../schema/model.js';
import { taskField, trainedFields } from '../../schema/run.js';
import { trainingBytes } from '../memory.js';
import { datasets, preset } from '../preset.js';
import { whenSet, problemUnless, type Rule } from '../../schema/rules.js';
import { sharedRules, wholeBatches } from '../training_rules.js';

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('image_tokenizer'),
  algorithm: tokenizerAlgorithm,
  data: imageData,
  environment: section('The image tokenizer that is trained.', z.strictObject({ init: imageTokenizerInit, engine })),
});
export type ImageTokenizerSettings = z.output<typeof schema>;

/** Convolutions whose activations a micro-batch keeps. */
const CONVOLUTIONS = 20;

const patches: Rule<ImageTokenizerSettings> = ({ data, environment }) =>
  whenSet([data?.tiny?.grid, data?.tiny?.cell, environment?.init?.patch], (grid, cell, patch) =>
    problemUnless(
      (grid * cell) % patch === 0,
      'environment.init.patch',
      `found ${patch}; allowed: a divisor of the image's side (${grid * cell} pixels)`,
    ),
  );

export const imageTokenizer = preset<ImageTokenizerSettings>({
  name: 'image_tokenizer',
  schema,
  pipeline: 'image-feature-extraction',
  usedAt: { key: 'environment.model', of: 'image_edit_tokens' },
  // One process computes the whole batch.
  microBatches: () => 1,
  parts: [
    { rules: [wholeBatches, ...sharedRules, patches] },
    datasets((path) => ({ kind: 'datalist', path })),
    {
      learns: {
        engine: 'environment.engine',
        start: null,
        parameters: parametersOf,
        memory: (settings) => {
          const { environment, data, optimizer } = settings;
          if (data.tiny === null) return null;
          const { hidden, patch } = environment.init;
          const codes = ((data.tiny.grid * data.tiny.cell) / patch) ** 2;
          return trainingBytes(parametersOf(settings), optimizer.per_device_batch_size * CONVOLUTIONS * codes * hidden);
        },
        shape: () => null,
      },
    },
  ],
});

/** Two matrices each way, between pixels, the hidden layer and codes; and the codebook. */
function parametersOf({ environment: { init } }: ImageTokenizerSettings): number {
  const { hidden, codebook_size, code_dim, patch } = init;
  return 2 * hidden * (3 * patch * patch + code_dim) + codebook_size * code_dim;
}
