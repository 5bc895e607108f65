import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { LoadedConfig } from '../../../src/config/load.js';
import { AnswerRooms, requireRoom } from '../../../src/launch/preflight/answer_room.js';
import { claimRun } from '../../../src/run/claim.js';
import { claimRequest } from '../../../src/run/claim_request.js';
import { loadEvaluated } from '../../config/evaluated.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('answer-room');

interface Limits {
  readonly context: number;
  readonly answer: number;
  readonly algorithm?: 'grpo' | 'sft';
}

/** A run whose words are those of a small model; `train` and `heldOut` are prompts of that many words, each of which is a token. */
async function runOf(
  { context, answer, algorithm = 'grpo' }: Limits,
  train: readonly number[],
  heldOut: readonly number[] = [],
): Promise<LoadedConfig> {
  const folder = newFolder();
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
  return loadEvaluated({ file });
}

const messages = ({ obstacles }: { readonly obstacles: readonly { readonly error: Error }[] }): string[] =>
  obstacles.map(({ error }) => error.message);

describe('the room that prompts leave', () => {
  it('is refused where no row has enough for max_response_tokens', async () => {
    const run = await runOf({ context: 16, answer: 12 }, [12, 13, 15]);
    const found = await new AnswerRooms().of([run]);
    expect(messages(found)).toEqual([
      expect.stringMatching(
        /train\.jsonl: all 3 prompts looked at leave answers 1 to 4 tokens, and rollout\.max_response_tokens is 12: .*policy\.model_context_size, which is 16/,
      ),
    ]);
    expect(found.warnings).toEqual([]);
    await expect(requireRoom([run], () => {})).rejects.toThrow(/leave answers 1 to 4 tokens/);
  });

  it('is warned of with the share of rows that have too little', async () => {
    const run = await runOf({ context: 16, answer: 12 }, [4, 5, 3, 8]);
    const found = await new AnswerRooms().of([run]);
    expect(found.obstacles).toEqual([]);
    expect(found.warnings).toEqual([
      expect.stringMatching(/train\.jsonl: 2 of 4 \(50\.0 %\) prompts looked at leave answers 8 to 11 tokens/),
    ]);
  });

  it('is that of held-out prompts, too', async () => {
    const found = await new AnswerRooms().of([await runOf({ context: 16, answer: 12 }, [4], [9, 10])]);
    expect(messages(found)).toEqual([
      expect.stringMatching(/held_out\.jsonl: all 2 prompts looked at leave answers 6 to 7 tokens/),
    ]);
  });

  it('of rows that are learnt as they stand is no matter', async () => {
    const found = await new AnswerRooms().of([await runOf({ context: 16, answer: 12, algorithm: 'sft' }, [9], [3])]);
    expect(found).toEqual({ obstacles: [], warnings: [] });
  });

  it('is enough where nothing is cut', async () => {
    expect(await new AnswerRooms().of([await runOf({ context: 16, answer: 12 }, [1, 4], [4])])).toEqual({
      obstacles: [],
      warnings: [],
    });
  });

  it('is warned of where an answer may be as long as the context, which means as much as is left', async () => {
    const found = await new AnswerRooms().of([await runOf({ context: 16, answer: 16 }, [4, 4])]);
    expect(found.obstacles).toEqual([]);
    expect(found.warnings).toEqual([expect.stringMatching(/all 2 prompts looked at leave answers 12 tokens/)]);
  });

  it('is not held against a run that has begun', async () => {
    const run = await runOf({ context: 16, answer: 12 }, [12]);
    const handle = claimRun(claimRequest(run, { command: [], versions: {} }));
    handle.setState({ state: 'interrupted', iteration: 1 });
    handle.release();
    const found = await new AnswerRooms().of([run]);
    expect(found.obstacles).toEqual([]);
    expect(found.warnings).toHaveLength(1);
  });

  it('is told of once for several runs of one dataset', async () => {
    const run = await runOf({ context: 16, answer: 12 }, [4, 8]);
    const other = { ...run, settings: { ...run.settings, run_name: 'other', seed: 9 } };
    expect((await new AnswerRooms().of([run, other])).warnings).toHaveLength(1);
  });
});
