/** Steps on an iteration's episodes, of a policy that only writes down what it is asked. */
import { describe, expect, it } from 'vitest';
import type { Answer, LearnReport, Lesson, LossSpec, Policy, Statistics } from '../../src/policies/policy.js';
import { Stopwatch } from '../../src/train/stopwatch.js';
import { update, type Updater } from '../../src/train/update.js';

interface Taken {
  readonly lessons: readonly Lesson<string, Answer>[];
  readonly loss: LossSpec;
}

/** Its log-probabilities are -1 when it samples, and rise by 0.5 with each step. */
class NotingPolicy implements Policy<string, Answer, never> {
  readonly capabilities = { losses: ['reinforce', 'ratio'] as const, reference: true, average: false };
  readonly asked: string[] = [];
  readonly taken: Taken[] = [];
  steps = 0;
  sample(): Promise<Answer[][]> {
    throw new Error('not asked for');
  }
  async statistics(groups: readonly { readonly answers: readonly Answer[] }[], of: string): Promise<Statistics[][]> {
    this.asked.push(of);
    return this.#statistics(groups, of === 'reference' ? -3 : -1 + 0.5 * this.steps);
  }
  divergence(now: Statistics, reference: Statistics): Float64Array {
    return Float64Array.from(now.logProbs, (x, t) => x - reference.logProbs[t]);
  }
  async learn(lessons: readonly Lesson<string, Answer>[], loss: LossSpec): Promise<LearnReport> {
    this.taken.push({ lessons, loss });
    return { loss: this.taken.length, statistics: this.#statistics(lessons, -1 + 0.5 * this.steps), klClamped: 1 };
  }
  async step(): Promise<{ gradNorm: null; applied: true }> {
    this.steps += 1;
    return { gradNorm: null, applied: true };
  }
  checksum = (): string => '';
  files = () => ({});
  restore = (): void => {};
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

async function run(
  algorithm: Partial<Updater<string, Answer>['algorithm']>,
  given: readonly { advantages: readonly (number | null)[]; dropped: boolean; zeroSpread: boolean }[] = advantages,
) {
  const policy = new NotingPolicy();
  const alarms: string[] = [];
  const metrics = await update(
    4,
    groups,
    given,
    {
      policy,
      algorithm: { clip_range: null, inner_epochs: 1, minibatches: 1, kl_coeff: 0.1, kl_estimator: 'k3', ...algorithm },
      seed: 1,
      schedule: { schedule: 'constant', learningRate: 0.1, warmupSteps: 0 },
      trained: (_iteration, _prompt, { logProbs }) => Float32Array.from(logProbs, (_x, t) => (t === 0 ? 1 : 0)),
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
    expect(policy.taken[0].loss).toEqual({ policy: 'reinforce', kl: { coefficient: 0.1, estimator: 'k3' } });
    expect(policy.asked).toEqual(['reference']);
    // One action of each of the eight answers is trained.
    const weights = policy.taken[0].lessons[1].targets[1].weights;
    expect([...weights]).toEqual([0.125, 0, 0, 0]);
    expect(metrics).toMatchObject({ 'group/used': 4, 'policy/loss': 1, 'policy/kl': 2, 'policy/kl_clamped': 1 });
    expect(metrics['policy/rollout_mismatch']).toBe(0);
    expect(metrics).not.toHaveProperty(['policy/ratio_mean']);
    expect(alarms).toEqual([]);
  });

  it('asks for no reference without a KL term', async () => {
    const { policy, metrics } = await run({ kl_coeff: 0 });
    expect(policy.asked).toEqual([]);
    expect(policy.taken[0].loss).toEqual({ policy: 'reinforce', kl: null });
    expect(policy.taken[0].lessons[0].targets[0].reference).toBeNull();
    expect(metrics).not.toHaveProperty(['policy/kl']);
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
      expect(loss).toEqual({ policy: 'ratio', clip: 0.2, kl: { coefficient: 0.1, estimator: 'k3' } });
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

  it('divide each minibatch by its own trained actions', async () => {
    const { policy } = await run({ minibatches: 2 });
    for (const { lessons } of policy.taken) {
      const weights = lessons.flatMap(({ targets }) => targets.flatMap((target) => [...target.weights]));
      expect(weights.reduce((a, b) => a + b)).toBeCloseTo(1, 6);
    }
  });
});
