/** What rules see of settings that are valid in parts. */
import { describe, expect, it } from 'vitest';
import { validate } from '../../src/config/validate.js';
import {
  whenSet,
  validSection,
  markInvalid,
  problemUnless,
  type PartialSettings,
  type Rule,
} from '../../src/config/schema/rules.js';

type Settings = { policy: { kind: 'a'; width: number; heads: number | null } | { kind: 'b'; depth: number } | null };

const even: Rule<Settings> = ({ policy }) =>
  whenSet([policy?.width, policy?.heads], (width, heads) =>
    problemUnless(width % heads === 0, 'policy.width', `${width}`),
  );

describe('a rule', () => {
  it('reports nothing where a value of its is null, absent or invalid', () => {
    expect(even({ policy: { width: 7, heads: 2 } })).toEqual([{ key: 'policy.width', message: '7' }]);
    expect(even({ policy: { width: 8, heads: 2 } })).toEqual([]);
    expect([
      even({ policy: { width: 7, heads: null } }),
      even({ policy: { width: 7 } }),
      even({ policy: null }),
    ]).toEqual([[], [], []]);
    expect(even({})).toEqual([]);
  });

  it('takes a section for intact in which nothing is invalid', () => {
    const whole: PartialSettings<Settings>['policy'] = { kind: 'b', depth: 1 };
    expect([
      validSection(whole),
      validSection(null),
      validSection(undefined),
      validSection(markInvalid(whole)),
    ]).toEqual([...[whole, null, undefined, undefined]]);
  });
});

describe('a config that the schema rejects in one place', () => {
  const heads = { hidden_size: 16, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 4 };
  const problems = (config: object): string[] => {
    const found = validate({ run_name: 'r', num_iterations: 1, optimizer: { learning_rate: 1 }, ...config });
    return 'problems' in found ? found.problems.map(({ key }) => key) : [];
  };

  it('is checked by rules elsewhere, and not if a section lacks what is invalid', () => {
    const policy = (more: object): object => ({
      task: 'text_answers',
      policy: { init: { ...heads, ...more }, model: 'm' },
    });
    const policyOf = (config: object) => problems(config).filter((key) => key.startsWith('policy'));
    // Only a whole architecture stands against a model; heads are compared wherever both numbers are valid.
    expect(policyOf(policy({ num_key_value_heads: 3, rope_theta: 'x' }))).toEqual([
      'policy.init.rope_theta',
      'policy.init.num_key_value_heads',
    ]);
    expect(policyOf(policy({ num_key_value_heads: 3 }))).toEqual(['policy.init', 'policy.init.num_key_value_heads']);
  });

  it('is checked by the valid values alone if no one knows which variant was meant', () => {
    const algorithm = (minibatches: unknown): object => ({
      task: 'text_answers',
      rollout: { episodes_per_iteration: 16, generations_per_sample: 8 },
      algorithm: { type: 'grop', minibatches },
    });
    const ofAlgorithm = (config: object) => problems(config).filter((key) => key.startsWith('algorithm'));
    expect(ofAlgorithm(algorithm(3))).toEqual(['algorithm.type', 'algorithm.minibatches']);
    for (const invalid of [0, '3', null]) expect(ofAlgorithm(algorithm(invalid))).toEqual(['algorithm.type']);
  });
});
