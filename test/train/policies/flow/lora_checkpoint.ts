/** LoRA checkpoints of flow models as a run leaves them, with random matrices. */
import { RandomStream } from '../../../../src/core/random.js';
import { isAdapters, type LoraSettings } from '../../../../src/compute/nets/lora.js';
import { optimizer } from '../../../../src/config/schema/training.js';
import { loadFlow } from '../../../../src/train/policies/flow/load.js';
import { FlowPolicy } from '../../../../src/train/policies/flow/policy.js';
import { writeCheckpoint } from '../../../support/checkpoint.js';

export interface LoraChoice {
  readonly rank: number;
  readonly alpha: number;
  readonly rslora?: boolean;
  readonly targets: LoraSettings['targets'];
}

/** Writes a checkpoint of LoRA over a model's folder into an empty folder, and returns that. */
export async function loraCheckpoint(folder: string, base: string, choice: LoraChoice, seed = 1): Promise<string> {
  const training = { trains: 'lora', lora: { rslora: false, ...choice }, imagePrompt: null, seed } as const;
  const model = loadFlow(base, training);
  for (const [name, { data }] of model.weights) {
    if (!isAdapters(name)) continue;
    const stream = new RandomStream('lora checkpoint', seed, name);
    for (let i = 0; i < data.length; i++) data[i] = 0.2 * stream.normal();
  }
  const policy = new FlowPolicy({
    model,
    optimizer: optimizer.parse({ learning_rate: 1e-3, per_device_batch_size: 1 }),
    guidance: null,
    session: { threads: 1 },
    keepReference: false,
  });
  const written = writeCheckpoint(folder, await policy.files());
  await policy.dispose();
  return written;
}
