import { describe, expect, it } from 'vitest';
import { encodePlainPng } from '../../src/core/images/png.js';
import type { Answer, Policy } from '../../src/train/policies/policy.js';
import type { JudgeItem } from '../../src/rewards/score/types.js';
import type { Scorer } from '../../src/train/scoring/scorer.js';
import type { Prompt } from '../../src/train/scoring/task.js';
import type { EpisodeImages } from '../../src/run/episodes.js';
import { HeldOut } from '../../src/train/held_out.js';
import { onRanks } from './groups.js';
import { scored, scorerOf, unscored, zero, smallTrainings } from './small_training.js';

const make = smallTrainings('held-out-');

describe('held-out evaluation', () => {
  it('averages what is scored, counts what is not, and counts zeros by rule as 0', async () => {
    const byNumber = [scored(6), unscored, zero, scored(3)];
    const made = make(scorerOf((key) => byNumber[Number(key.split('/').at(-1))]));
    const metrics = await made.heldOut.evaluate(7);
    // 6, 0 and 3: mean 3, population variance 6, standard error sqrt(6 / 2)
    for (const name of ['validation/sampled', 'validation/greedy', 'validation/s/sampled', 'validation/s/greedy']) {
      expect(metrics[`${name}/mean`]).toBeCloseTo(3, 12);
      expect(metrics[`${name}/stderr`]).toBeCloseTo(Math.sqrt(3), 12);
      expect(metrics[`${name}/unscored`]).toBe(1);
      expect(metrics[`${name}/a`]).toBe(4.5);
    }
    expect(made.shown).toHaveLength(1);
    expect(made.shown[0].map(({ score }) => score)).toEqual(['6.0', 'timeout', '0 (undecodable)', '3.0']);
    expect(made.shown[0][0].truth).not.toBeNull();
  });

  it('counts the answers that the context cut, apart from those of max_response_tokens', async () => {
    // Few unconstrained answers of random weights end: where the longest has 3 tokens, that is what cuts them, and the context otherwise.
    const changes = { policy: { emu3_use_logit_processor: false } };
    const cut = async (tokens: number): Promise<unknown> => {
      const made = make(
        scorerOf(() => scored(1)),
        { ...changes, rollout: { max_response_tokens: tokens } },
      );
      return (await made.heldOut.evaluate(0))['validation/sampled/cut_by_context'];
    };
    expect(await cut(3)).toBe(0);
    expect(await cut(100_000)).toBeGreaterThan(0);
  });

  it('has the mean and the error of every measure, of each set and of all', async () => {
    const made = make(
      scorerOf((key) => ({ ...scored(1), measures: { viescore: scored(Number(key.split('/').at(-1))) } })),
      { validation: { greedy: false, measure: [{ name: 'viescore' }] } },
    );
    const metrics = await made.heldOut.evaluate(0);
    for (const name of ['validation/sampled', 'validation/s/sampled']) {
      expect(metrics[`${name}/mean`]).toBe(1);
      // 0 to 3: mean 1.5, variance 5/3 of 4
      expect(metrics[`${name}/measure/viescore/mean`]).toBe(1.5);
      expect(metrics[`${name}/measure/viescore/stderr`]).toBeCloseTo(Math.sqrt(5 / 12), 12);
      expect(metrics[`${name}/measure/viescore/unscored`]).toBe(0);
    }
  });

  it('rejects a measure that no held-out prompt has what it needs for', async () => {
    const made = make(
      scorerOf(() => scored(1)),
      { validation: { greedy: false, measure: [{ name: 'viescore' }] } },
    );
    await expect(made.heldOut.evaluate(0)).rejects.toThrow(
      "validation.measure 'viescore' can score no held-out answer",
    );
  });

  it('has no mean if nothing is scored', async () => {
    const metrics = await make(
      scorerOf(() => unscored),
      { validation: { greedy: false } },
    ).heldOut.evaluate(0);
    expect(metrics['validation/sampled/mean']).toBeNaN();
    expect(metrics['validation/sampled/unscored']).toBe(4);
    expect(Object.keys(metrics).some((name) => name.includes('greedy'))).toBe(false);
  });

  it('asks for the same prompts with the same random numbers at every evaluation', async () => {
    const seen: JudgeItem[][] = [];
    const watching: Scorer = {
      begin: async (items) => {
        seen.push([...items]);
        return items.map(() => scored(1));
      },
      settle: async (_items, outcomes) => [...outcomes],
      close: async () => {},
    };
    const made = make(watching);
    await made.heldOut.evaluate(0);
    await made.heldOut.evaluate(50);
    const [sampled, greedy, sampledAgain, greedyAgain] = seen;
    const content = (items: JudgeItem[]) => items.map(({ instruction, edited }) => [instruction, edited]);
    expect(content(sampledAgain)).toEqual(content(sampled));
    expect(content(greedyAgain)).toEqual(content(greedy));
    expect(content(greedy)).not.toEqual(content(sampled));
    expect(sampled.map(({ key }) => key)).toEqual([0, 1, 2, 3].map((i) => `validation/0/s/sampled/${i}`));
    expect(greedyAgain[2].key).toBe('validation/50/s/greedy/2');
    // another seed, other answers
    const other = make(watching, { validation: { seed: 1 } });
    await other.heldOut.evaluate(0);
    expect(content(seen[4])).not.toEqual(content(sampled));
  });
});

describe('the answers that are shown', () => {
  /**
   * An evaluation of so many prompts on each of some ranks, by which each answer's caption is its prompt's number: captions, scores, and how wide
   * the image is that the answer shows as its source, of one pixel, or else the prompt, of two.
   */
  async function shownOf(prompts: number, ranks: number, byPrompt = false) {
    const shown: string[] = [];
    const recorded: EpisodeImages[] = [];
    const pair = async () => encodePlainPng({ width: 2, height: 1, data: new Uint8Array(6) });
    const source = {
      name: 's',
      length: prompts,
      prompt: async (i: number) => ({ id: `${i}`, instruction: '', sourcePng: byPrompt ? pair : null }),
    };
    await onRanks(ranks, async (group) => {
      const unused = async (): Promise<never> => {
        throw new Error('not in an evaluation');
      };
      const dot = { width: 1, height: 1, data: new Uint8Array(3) };
      const heldOut = new HeldOut<Prompt, Answer, null>({
        group,
        validation: { prompts, seed: 1 },
        samplings: { sampled: null, greedy: null },
        weights: 'current',
        longestAnswer: null,
        chunk: 3,
        scorer: scorerOf((key) => scored(Number(key.split('/').at(-1)))),
        policy: {
          sample: async ({ prompts: part }) => part.map(() => [{ logProbs: new Float32Array(), finished: true }]),
        } as Pick<Policy<Prompt, Answer, null>, 'sample'> as Policy<Prompt, Answer, null>,
        task: {
          order: { ordinary: () => ({ source: 0, index: 0 }), refill: () => ({ source: 0, index: 0 }), epochLength: 1 },
          validation: [source],
          prompt: unused,
          labels: unused,
          reread: () => ({ logProbs: new Float32Array(), finished: true }),
          dispose: async () => {},
          render: async (chunk) =>
            chunk.map(({ prompt, keys: [key] }) => [
              {
                item: { key, instruction: '', source: byPrompt ? null : dot, edited: dot, truth: null, finished: true },
                record: {},
                caption: prompt.id,
              },
            ]),
        },
        show: async (_iteration, rows) =>
          void shown.push(
            ...rows.map(({ instruction, score, source }) => `${instruction}: ${score}, ${source?.width ?? 0}`),
          ),
        record: (_iteration, episodes) =>
          void recorded.push(...episodes.flatMap(({ images }) => (images === null ? [] : [images]))),
      });
      await heldOut.evaluate(1);
    });
    return { shown, recorded };
  }

  it.each([
    [1, 9],
    [2, 9],
    [2, 30],
    [4, 10],
  ])('are the first six, on whichever of %i ranks they were made', async (ranks, prompts) => {
    const { shown } = await shownOf(prompts, ranks);
    expect(shown).toEqual([0, 1, 2, 3, 4, 5].map((i) => `${i}: ${i}.0, 1`));
  });

  it.each([1, 2])('are recorded with their images, the first 64 of each sampling, on %i ranks', async (ranks) => {
    const { recorded } = await shownOf(70, ranks, true);
    expect(recorded).toHaveLength(128);
    const [source, edited] = [recorded.at(-1)?.source, recorded.at(-1)?.edited].map((png) => png instanceof Uint8Array);
    expect({ source, edited, truth: recorded.at(-1)?.truth }).toEqual({ source: true, edited: true, truth: null });
  });
});

describe('chunks of held-out prompts', () => {
  const few = { rollout: { chunk_groups: 1, generations_per_sample: 2 }, validation: { prompts: 5, greedy: false } };

  it('wait for what is being scored before they raise what came first', async () => {
    const order: string[] = [];
    let judge = (): void => {};
    const slow: Scorer = {
      ...scorerOf(() => scored(1)),
      begin: async () => {
        await new Promise<void>((resolve) => (judge = resolve));
        order.push('judged');
        throw new Error('too late');
      },
    };
    const made = make(slow, few);
    const render = made.task.render.bind(made.task);
    made.task.render = async (chunk) => {
      if (chunk[0].keys[0].endsWith('/2')) {
        // The judge answers only when the evaluation has failed.
        setTimeout(() => judge(), 50);
        throw new Error('no image');
      }
      return render(chunk);
    };
    await expect(made.heldOut.evaluate(0).finally(() => order.push('raised'))).rejects.toThrow('no image');
    expect(order).toEqual(['judged', 'raised']);
  });
});
