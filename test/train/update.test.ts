/** Steps on an iteration's episodes, of a policy that only writes down what it is asked. */
import { describe, expect, it } from 'vitest';
import type { LossSpec } from '../../src/train/policies/losses/table.js';
import type { Answer, LearnReport, TrainGroup, Policy, Statistics } from '../../src/train/policies/policy.js';
import { Stopwatch } from '../../src/train/grpo_metrics.js';
import { update, type UpdateOptions } from '../../src/train/update.js';

interface Taken {
  readonly lessons: readonly TrainGroup<string, Answer>[];
  readonly loss: LossSpec;
  /** The groups that the lessons were chosen from. */
  readonly among: readonly { readonly prompt: string }[] | undefined;
}

/** Its log-probabilities are -1 when it samples, and rise by 0.5 with each step. */
class NotingPolicy implements Policy<string, Answer, never> {
  readonly capabilities = {
    losses: ['reinforce', 'ratio'] as const,
    reference: true,
    average: false,
    hiddenStates: false,
  };
  readonly actions = 'tokens';
  readonly asked: string[] = [];
  readonly taken: Taken[] = [];
  steps = 0;
  sample(): Promise<Answer[][]> {
    throw new Error('not asked for');
  }
  async statistics(
    groups: readonly { readonly answers: readonly Answer[] }[],
    of: string,
    _among?: unknown,
    withMeans = false,
  ): Promise<Statistics[][]> {
    this.asked.push(withMeans ? `${of} with means` : of);
    return this.#statistics(groups, of === 'reference' ? -3 : -1 + 0.5 * this.steps);
  }
  divergence(now: Statistics, reference: Statistics): Float64Array {
    return Float64Array.from(now.logProbs, (x, t) => x - reference.logProbs[t]);
  }
  async learn(
    lessons: readonly TrainGroup<string, Answer>[],
    loss: LossSpec,
    among?: readonly { readonly prompt: string }[],
  ): Promise<LearnReport> {
    this.taken.push({ lessons, loss, among });
    return { loss: this.taken.length, statistics: this.#statistics(lessons, -1 + 0.5 * this.steps), klClamped: 1 };
  }
  async step(): Promise<{ gradNorm: null; applied: true }> {
    this.steps += 1;
    return { gradNorm: null, applied: true };
  }
  checksum = async (): Promise<string> => '';
  files = async () => ({});
  restore = async (): Promise<void> => {};
  dispose = async (): Promise<void> => {};
  #statistics(groups: readonly { readonly answers: readonly Answer[] }[], logProb: number): Statistics[][] {
    return groups.map(({ answers }) =>
      answers.map(({ logProbs }) => ({ logProbs: new Float32Array(logProbs.length).fill(logProb) })),
    );
  }
}

const lengths = [
  [1, 2],
  [3, 4],
  [5, 6],
  [7, 8],
];
const groups = lengths.map((group, i) => ({
  prompt: String(i),
  answers: group.map((length) => ({ logProbs: new Float32Array(length).fill(-1), finished: true })),
}));
const scoredGroup = { advantages: [1, -1], dropped: false, zeroSpread: false };
const advantages = groups.map(() => scoredGroup);

const plain = {
  clip_range: null,
  clip_range_high: null,
  surrogate: 'ppo',
  ratio: 'token',
  aggregation: 'token',
  inner_epochs: 1,
  minibatches: 1,
  kl_coeff: 0.1,
} as const;

async function run(
  algorithm: Partial<UpdateOptions<string, Answer>['algorithm']>,
  given: readonly { advantages: readonly (number | null)[]; dropped: boolean; zeroSpread: boolean }[] = advantages,
  more: Partial<Pick<UpdateOptions<string, Answer>, 'importanceCap' | 'minibatchesOf' | 'trained'>> & {
    readonly sampled?: typeof groups;
    readonly sampledBy?: 'average';
  } = {},
) {
  const policy = new NotingPolicy();
  const alarms: string[] = [];
  const metrics = await update(
    4,
    more.sampled ?? groups,
    given,
    {
      importanceCap: more.importanceCap ?? null,
      policy,
      algorithm: { ...plain, ...algorithm },
      longestAnswer: 10,
      seed: 1,
      schedule: { schedule: 'constant', learningRate: 0.1, warmupSteps: 0 },
      trained: (_iteration, _prompt, { logProbs }) => Float32Array.from(logProbs, (_x, t) => (t === 0 ? 1 : 0)),
      ...(more.trained === undefined ? {} : { trained: more.trained }),
      ...(more.minibatchesOf === undefined ? {} : { minibatchesOf: more.minibatchesOf }),
      ...(more.sampledBy === undefined ? {} : { sampledBy: more.sampledBy }),
      mismatchAlarm: 1e-3,
      alarm: (message) => alarms.push(message),
    },
    new Stopwatch(),
  );
  return { policy, alarms, metrics };
}

const prompts = ({ lessons }: Taken): string[] => lessons.map(({ prompt }) => prompt);

describe('one step', () => {
  it('needs no ratio, keeps the order, and divides by the trained actions', async () => {
    const { policy, metrics, alarms } = await run({});
    expect(policy.taken.map(prompts)).toEqual([['0', '1', '2', '3']]);
    expect(policy.taken[0].loss).toEqual({ policy: 'reinforce', kl: { coefficient: 0.1 } });
    expect(policy.asked).toEqual(['reference']);
    // One action of each of the eight answers is trained.
    const weights = policy.taken[0].lessons[1].targets[1].weights;
    expect([...weights]).toEqual([0.125, 0, 0, 0]);
    expect(metrics).toMatchObject({ 'group/used': 4, 'policy/loss': 1, 'policy/kl': 2, 'policy/kl_clamped': 1 });
    expect(metrics['policy/rollout_mismatch']).toBe(0);
    expect(metrics).not.toHaveProperty(['policy/ratio_mean']);
    expect(alarms).toEqual([]);
  });

  it('leaves out dropped groups and unscored episodes', async () => {
    const some = [
      scoredGroup,
      { advantages: [null, null], dropped: true, zeroSpread: false },
      scoredGroup,
      scoredGroup,
    ];
    const { policy } = await run({}, [some[0], some[1], { ...scoredGroup, advantages: [1, null] }, some[3]]);
    expect(policy.taken.map(prompts)).toEqual([['0', '2', '3']]);
    const { targets } = policy.taken[0].lessons[1];
    expect([...targets[1].weights]).toEqual([0, 0, 0, 0, 0, 0]);
    expect(targets[0].weights[0]).toBeCloseTo(1 / 5, 6);
  });
});

describe('several steps', () => {
  it('take the old log-probabilities of the weights that sampled, once and before the first step', async () => {
    const { policy, metrics } = await run({ minibatches: 2, inner_epochs: 2, clip_range: 0.2 });
    expect(policy.asked).toEqual(['reference', 'current']);
    expect(policy.steps).toBe(4);
    for (const { lessons, loss } of policy.taken) {
      expect(loss).toEqual({ policy: 'ratio', clip: 0.2, kl: { coefficient: 0.1 } });
      expect(lessons[0].targets[0].old!.logProbs[0]).toBe(-1);
    }
    // Ratios 1, e^0.5, e^1 and e^1.5, of which all but the first are clipped.
    const ratios = [0, 0.5, 1, 1.5].map(Math.exp);
    expect(metrics['policy/ratio_mean']).toBeCloseTo(ratios.reduce((a, b) => a + b) / 4, 9);
    expect(metrics['policy/ratio_max']).toBeCloseTo(ratios[3], 9);
    expect(metrics['policy/ratio_clipped']).toBeCloseTo(0.75, 9);
    // The loss is that of the first epoch.
    expect(metrics['policy/loss']).toBe(1.5);
  });

  it('see every group once an epoch, in an order of its own that the seed decides', async () => {
    const order = async (): Promise<string[][]> => {
      const { policy } = await run({ minibatches: 2, inner_epochs: 6 });
      return policy.taken.map(prompts);
    };
    const found = await order();
    expect(await order()).toEqual(found);
    const epochs = Array.from({ length: 6 }, (_, i) => found.slice(2 * i, 2 * i + 2).flat());
    for (const epoch of epochs) expect([...epoch].sort()).toEqual(['0', '1', '2', '3']);
    expect(new Set(epochs.map((epoch) => epoch.join())).size).toBeGreaterThan(1);
  });
});

describe('loss options', () => {
  it('divide as the aggregation says', async () => {
    const all: UpdateOptions<string, Answer>['trained'] = (_iteration, _prompt, { logProbs }) => logProbs.map(() => 1);
    const fixed = await run({ aggregation: 'dr_grpo', minibatches: 2 }, advantages, { trained: all });
    expect(fixed.policy.taken[1].lessons[0].targets[0].weights[0]).toBeCloseTo(1 / (4 * 10), 7);
    const dapo = await run({ aggregation: 'dapo', minibatches: 2 }, advantages, { trained: all });
    expect(dapo.policy.taken[1].lessons[0].targets[0].weights[0]).toBeCloseTo(2 / 36, 7);
  });

  it('name the loss that has them', async () => {
    const high = await run({ clip_range: 0.2, clip_range_high: 0.3, minibatches: 2, kl_coeff: 0 });
    expect(high.policy.taken[0].loss).toEqual({ policy: 'ratio', clip: 0.2, clipHigh: 0.3, kl: null });
    const cispo = await run({ surrogate: 'cispo', clip_range_high: 4, minibatches: 2, kl_coeff: 0 });
    expect(cispo.policy.taken[0].loss).toEqual({ policy: 'cispo', most: 5, kl: null });
    // Ratios are 1 and e^0.5: none is above the largest.
    expect(cispo.metrics['policy/ratio_clipped']).toBe(0);
    expect(high.policy.asked).toEqual(['current']);
    const nft = { surrogate: 'nft', nft: { beta: 0.5, levels: null, sampled_by: 'average' }, kl_coeff: 0 } as const;
    const forward = await run({ ...nft, advantage: { clip: 5 } }, advantages, { sampledBy: 'average' });
    expect(forward.policy.taken[0].loss).toEqual({ policy: 'nft', beta: 0.5, limit: 5, kl: null });
    expect(forward.policy.asked).toEqual(['average with means']);
    expect(forward.metrics).not.toHaveProperty('policy/ratio_mean');
  });

  it('take ratios of whole answers into the advantages, from statistics before each step but the first', async () => {
    const all: UpdateOptions<string, Answer>['trained'] = (_iteration, _prompt, { logProbs }) => logProbs.map(() => 1);
    const options = { ratio: 'answer', minibatches: 2, clip_range: 0.8, aggregation: 'answer', kl_coeff: 0 } as const;
    const { policy, metrics } = await run(options, advantages, { trained: all });
    expect(policy.asked).toEqual(['current', 'current']);
    expect(policy.taken.map(({ loss }) => loss)).toEqual([
      { policy: 'reinforce', kl: null },
      { policy: 'reinforce', kl: null },
    ]);
    const factors = policy.taken.map(({ lessons }) =>
      lessons[0].targets.map(({ advantages: of }) => (of as Float32Array)[0]),
    );
    expect(factors[0]).toEqual([1, -1]);
    // After a step every log-probability is 0.5 higher, and so is their mean: e^0.5 is within 1.8.
    [Math.exp(0.5), -Math.exp(0.5)].forEach((one, g) => expect(factors[1][g]).toBeCloseTo(one, 6));
    expect(metrics['policy/ratio_max']).toBeCloseTo(Math.exp(0.5), 9);
    expect(metrics['policy/ratio_mean']).toBeCloseTo((1 + Math.exp(0.5)) / 2, 9);
    expect(metrics['policy/ratio_clipped']).toBe(0);
  });
});

describe('minibatches of actions', () => {
  const all: UpdateOptions<string, Answer>['trained'] = (_iteration, _prompt, { logProbs }) => logProbs.map(() => 1);
  const placesOf = ({ lessons }: Taken): string[] =>
    lessons.flatMap(({ prompt, targets }) =>
      targets.flatMap(({ weights }, g) => [...weights].flatMap((w, t) => (w === 0 ? [] : [`${prompt}/${g}/${t}`]))),
    );

  it('see every action once an epoch, mixed over groups, answers and places', async () => {
    const { policy } = await run({ minibatches: 3, inner_epochs: 2 }, advantages, {
      minibatchesOf: 'actions',
      trained: all,
    });
    expect(policy.steps).toBe(6);
    const places = policy.taken.map(placesOf);
    const every = lengths.flatMap((group, i) =>
      group.flatMap((length, g) => Array.from({ length }, (_, t) => `${i}/${g}/${t}`)),
    );
    for (const epoch of [places.slice(0, 3), places.slice(3)]) {
      expect(epoch.map((part) => part.length)).toEqual([12, 12, 12]);
      expect(epoch.flat().sort()).toEqual([...every].sort());
    }
    expect(places[0]).not.toEqual(places[3]);
    // The longest answer's actions are not all in one part.
    const longest = places.slice(0, 3).map((part) => part.filter((place) => place.startsWith('3/1/')).length);
    expect(longest.filter((count) => count > 0).length).toBeGreaterThan(1);
  });

  it('weigh each action by those of its own part, and hold no group without one', async () => {
    const { policy } = await run({ minibatches: 9 }, advantages, { minibatchesOf: 'actions', trained: all });
    for (const { lessons } of policy.taken) {
      const weights = lessons.flatMap(({ targets }) => targets.flatMap((target) => [...target.weights]));
      expect(weights.filter((w) => w !== 0)).toEqual(Array.from({ length: 4 }, () => 0.25));
      for (const { targets } of lessons) expect(targets.some((one) => one.weights.some((w) => w !== 0))).toBe(true);
    }
  });
});

/** Answers whose sampler gave these log-probabilities to their first action, and the trainer's to the others. */
function sampledWith(first: (group: number, answer: number) => number): typeof groups {
  return groups.map(({ prompt, answers }, i) => ({
    prompt,
    answers: answers.map(({ logProbs, finished }, g) => ({
      logProbs: logProbs.map((x, t) => (t === 0 ? first(i, g) : x)),
      finished,
    })),
  }));
}

describe('answers that were sampled elsewhere', () => {
  // The trainer's are -1: ratios 1, e^0.5, e^-1 and e^3, of which the last is cut, each in both answers of a group.
  const sampled = sampledWith((group) => -1 - [0, 0.5, -1, 3][group]);
  const ratios = [0, 0.5, -1, 3].map(Math.exp);

  it('are weighed by how much more probable the trainer finds each action, up to the cap, though one step is taken', async () => {
    const { policy, metrics, alarms } = await run({}, advantages, { importanceCap: 2, sampled });
    expect(policy.asked).toEqual(['reference', 'current']);
    expect(policy.taken[0].loss.policy).toBe('reinforce');
    policy.taken[0].lessons.forEach(({ targets }, i) => {
      for (const { weights, old } of targets) {
        // The divisor is the number of trained actions, whatever they weigh.
        expect(weights[0]).toBeCloseTo(Math.min(ratios[i], 2) / 8, 6);
        expect(weights.slice(1).every((one) => one === 0)).toBe(true);
        expect(old).toBeNull();
      }
    });
    expect(metrics['policy/importance_mean']).toBeCloseTo(ratios.reduce((a, b) => a + b) / 4, 5);
    expect(metrics['policy/importance_max']).toBeCloseTo(ratios[3], 4);
    expect(metrics['policy/importance_cut']).toBe(0.25);
    const applied = ratios.map((ratio) => Math.min(ratio, 2));
    const [sum, squares] = [1, 2].map((power) => applied.reduce((total, one) => total + one ** power, 0));
    expect(metrics['policy/importance_ess']).toBeCloseTo(sum ** 2 / squares / 4, 6);
    expect(metrics['policy/rollout_mismatch']).toBeCloseTo(3, 6);
    expect(alarms).toHaveLength(1);
    expect(alarms[0]).toContain('25% of the importance weights exceed rollout.importance_cap (2)');
  });

  it('are 1 without log-probabilities of the sampler, and stay finite for huge differences', async () => {
    const untold = groups.map(({ prompt, answers }, i) => ({
      prompt,
      answers: answers.map(({ logProbs, finished }) => ({
        logProbs: i === 0 ? logProbs.map(() => NaN) : i === 1 ? logProbs.map(() => -1e6) : logProbs,
        finished,
      })),
    }));
    const { policy, metrics } = await run({}, advantages, { importanceCap: 2, sampled: untold });
    expect(policy.taken[0].lessons[0].targets[0].weights[0]).toBe(0.125);
    expect(metrics['policy/importance_max']).toBeCloseTo(Math.exp(20), -3);
    const none = groups.map(({ prompt, answers }) => ({
      prompt,
      answers: answers.map(({ logProbs, finished }) => ({ logProbs: logProbs.map(() => NaN), finished })),
    }));
    const silent = await run({}, advantages, { importanceCap: 2, sampled: none });
    expect(silent.policy.asked).toEqual(['reference']);
    expect(silent.metrics['policy/rollout_mismatch']).toBeUndefined();
    expect(silent.metrics).not.toHaveProperty(['policy/importance_mean']);
  });
});
