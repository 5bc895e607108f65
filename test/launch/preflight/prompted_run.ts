/** Runs with prompts of known lengths, and a context of a known size. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { LoadedConfig } from '../../../src/config/load.js';
import { loadEvaluated } from '../../config/evaluated.js';

export interface Limits {
  readonly context: number;
  readonly answer: number;
  readonly algorithm?: 'grpo' | 'sft';
}

/** The config of a run whose words are those of a small model; `train` and `heldOut` are prompts of that many words, each of which is a token. */
export function fileOf(
  folder: string,
  { context, answer, algorithm = 'grpo' }: Limits,
  ...[train = [], heldOut = []]: readonly (readonly number[])[]
): string {
  const write = (name: string, lengths: readonly number[]): string => {
    const path = join(folder, `${name}.jsonl`);
    const row = (words: number): string =>
      JSON.stringify({ prompt: Array.from({ length: words }, () => 'red').join(' '), expected: 'red' });
    writeFileSync(path, lengths.map((words) => `${row(words)}\n`).join(''));
    return path;
  };
  const file = join(folder, 'own.jsonnet');
  const config = {
    run_name: 'own',
    base_exp_dir: join(folder, 'runs'),
    task: 'text_answers',
    num_iterations: 2,
    algorithm: { type: algorithm },
    optimizer: { learning_rate: 0.01, per_device_batch_size: 2 },
    rollout: { episodes_per_iteration: 4, generations_per_sample: 2, max_response_tokens: answer },
    policy: {
      init: {
        hidden_size: 16,
        intermediate_size: 24,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: 1,
      },
      model_context_size: context,
    },
    prompt: { chat: false },
    data: {
      dir: folder,
      columns: { expected: 'expected' },
      train: [{ path: write('train', train) }],
      validation: heldOut.length === 0 ? [] : [{ path: write('held_out', heldOut) }],
      tiny: {},
    },
    reward: { mode: 'word_overlap' },
  };
  writeFileSync(file, JSON.stringify(config));
  return file;
}

export const runOf = (
  folder: string,
  limits: Limits,
  ...lengths: readonly (readonly number[])[]
): Promise<LoadedConfig> => loadEvaluated({ file: fileOf(folder, limits, ...lengths) });
