/** Credit by region of a policy whose actions draw all cells of a picture, as the steps of a solver do. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { LossSpec } from '../../src/policies/losses/table.js';
import type { CellAdvantages, Lesson } from '../../src/policies/policy.js';
import type { Outcome } from '../../src/rewards/score/types.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../recipes/image_edit_tokens/small_world.js';
import { testFolder } from '../support/folder.js';
import { rewardByName, scorerOf, smallTraining, type SmallTraining } from './small_training.js';

const root = testFolder('paid-cells');
let world: SmallWorld;
beforeAll(async () => {
  world = await makeSmallWorld(root);
});
const open: SmallTraining[] = [];
afterAll(() => Promise.all(open.map(({ training }) => training.dispose())));

const terms = [
  { name: 'viescore', part: 'edit_success', weight: 0.5, credit: 'changed' },
  { name: 'viescore', part: 'overedit', weight: 0.5, credit: 'kept' },
];
const byTerm = (key: string): Outcome => {
  const values = ['a', 'b'].map((term) => rewardByName(`${term} ${key}`) / 10);
  return {
    kind: 'scored',
    value: values[0],
    normalised: values[0],
    parts: {},
    terms: values.map((normalised, k) => ({ name: `t${k}`, weight: 0.5, normalised })),
  };
};

/** One iteration, with what the policy is taught by. */
async function taught(actions: 'tokens' | 'steps') {
  const settings = smallSettings(world, {
    algorithm: { kl_coeff: 0, advantage: { per_term: true } },
    reward: { mode: null, terms },
  });
  const learnt: { loss: LossSpec; cells: (CellAdvantages | null)[][] }[] = [];
  const cells = Uint8Array.of(1, 0, 0);
  const made = smallTraining(settings, scorerOf(byTerm), undefined, {
    regions: {
      share: 1,
      border: 0,
      cellsOf: () => ({ height: 1, width: 3, ofAction: null, changed: cells }),
      labelled: () => cells,
    },
    through: (policy) => {
      const learn = policy.learn.bind(policy);
      const of = { ...policy.capabilities, losses: [...policy.capabilities.losses, 'cells' as const] };
      Object.defineProperty(policy, 'capabilities', { value: of });
      Object.defineProperty(policy, 'actions', { value: actions });
      return Object.assign(policy, {
        learn: (lessons: Parameters<typeof learn>[0], loss: LossSpec) => {
          const told = (lessons as readonly Lesson<unknown, unknown>[]).map(({ targets }) =>
            targets.map((one) => one.cells ?? null),
          );
          learnt.push({ loss, cells: told });
          return learn(lessons, { policy: 'reinforce', kl: null });
        },
      });
    },
  });
  open.push(made);
  const metrics = await made.training.step(1);
  return { learnt, metrics, records: made.records };
}

it('pays the cells of each answer, by a loss of its own', async () => {
  const { learnt, metrics, records } = await taught('steps');
  expect(learnt).toHaveLength(1);
  const [{ loss, cells }] = learnt;
  expect(loss).toEqual({ policy: 'cells', kl: null });
  const credits = records[0].credits ?? [];
  expect(credits.flat()).toHaveLength(12);
  expect(cells).toEqual(
    credits.map((group) =>
      group.map((one) => one && { cells: one.region.cells, inside: one.changed, outside: one.kept }),
    ),
  );
  expect(cells.flat().every((one) => one !== null && one.inside !== one.outside)).toBe(true);
  expect(metrics['credit/changed_cells']).toBeCloseTo(1 / 3, 9);
});

it('leaves it to the actions of a policy that draws cell by cell', async () => {
  const { learnt } = await taught('tokens');
  expect(learnt[0].loss).toEqual({ policy: 'reinforce', kl: null });
  expect(learnt[0].cells.flat().every((one) => one === null)).toBe(true);
});
