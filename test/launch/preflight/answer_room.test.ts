import { describe, expect, it } from 'vitest';
import { AnswerRoomChecks } from '../../../src/launch/preflight/answer_room.js';
import { claimRun } from '../../../src/run/claim/claim.js';
import { claimRequest } from '../../../src/run/claim/claim_request.js';
import { testFolders } from '../../support/folder.js';
import { runOf as runIn, type Limits } from './prompted_run.js';

const newFolder = testFolders('answer-room');
const runOf = (limits: Limits, ...lengths: readonly (readonly number[])[]) => runIn(newFolder(), limits, ...lengths);

const messages = ({ obstacles }: { readonly obstacles: readonly { readonly error: Error }[] }): string[] =>
  obstacles.map(({ error }) => error.message);

describe('the room that prompts leave', () => {
  it('is rejected if no row has enough for max_response_tokens', async () => {
    const run = await runOf({ context: 16, answer: 12 }, [12, 13, 15]);
    const found = await new AnswerRoomChecks().of([run]);
    expect(messages(found)).toEqual([
      expect.stringMatching(
        /train\.jsonl: all 3 checked prompts leave answers 1 to 4 tokens, and rollout\.max_response_tokens is 12: .*policy\.model_context_size, which is 16/,
      ),
    ]);
    expect(found.warnings).toEqual([]);
  });

  it('is warned of with the share of rows that have too little', async () => {
    const run = await runOf({ context: 16, answer: 12 }, [4, 5, 3, 8]);
    const found = await new AnswerRoomChecks().of([run]);
    expect(found.obstacles).toEqual([]);
    expect(found.warnings).toEqual([
      expect.stringMatching(/train\.jsonl: 2 of 4 \(50\.0 %\) checked prompts leave answers 8 to 11 tokens/),
    ]);
  });

  it('is that of held-out prompts, too', async () => {
    const found = await new AnswerRoomChecks().of([await runOf({ context: 16, answer: 12 }, [4], [9, 10])]);
    expect(messages(found)).toEqual([
      expect.stringMatching(/held_out\.jsonl: all 2 checked prompts leave answers 6 to 7 tokens/),
    ]);
  });

  it('of rows that are learned as they stand is no matter', async () => {
    const found = await new AnswerRoomChecks().of([
      await runOf({ context: 16, answer: 12, algorithm: 'sft' }, [9], [3]),
    ]);
    expect(found).toEqual({ obstacles: [], warnings: [] });
  });

  it('is enough if nothing is cut', async () => {
    expect(await new AnswerRoomChecks().of([await runOf({ context: 16, answer: 12 }, [1, 4], [4])])).toEqual({
      obstacles: [],
      warnings: [],
    });
  });

  it('is warned of where an answer may be as long as the context, which means as much as is left', async () => {
    const found = await new AnswerRoomChecks().of([await runOf({ context: 16, answer: 16 }, [4, 4])]);
    expect(found.obstacles).toEqual([]);
    expect(found.warnings).toEqual([expect.stringMatching(/all 2 checked prompts leave answers 12 tokens/)]);
  });

  it('is not held against a run that has begun', async () => {
    const run = await runOf({ context: 16, answer: 12 }, [12]);
    const handle = claimRun(claimRequest(run, { command: [], versions: {} }));
    handle.setState({ state: 'interrupted', iteration: 1 });
    handle.release();
    const found = await new AnswerRoomChecks().of([run]);
    expect(found.obstacles).toEqual([]);
    expect(found.warnings).toHaveLength(1);
  });

  it('is reported once for several runs of one dataset', async () => {
    const run = await runOf({ context: 16, answer: 12 }, [4, 8]);
    const other = { ...run, settings: { ...run.settings, run_name: 'other', seed: 9 } };
    expect((await new AnswerRoomChecks().of([run, other])).warnings).toHaveLength(1);
  });
});
