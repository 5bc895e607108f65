/** Turns the flags of a reward server into a reward section. */
import { configError, problemsOf } from '../../config/problems.js';
import { reward as rewardSchema, type RewardSettings } from '../../rewards/schema/reward.js';
import { rewardRules } from '../../recipes/shared/rules/reward.js';
import { UsageError } from '../../core/errors.js';
import { nearest } from '../../core/nearest.js';
import { termKinds, termNames, type TermName } from '../../rewards/terms/table.js';

/** A reward as described by flags. */
export interface TermFlags {
  /** Names of terms, with their weights if given: `ocr_confidence`, `align_quality=0.4`. */
  readonly terms: readonly string[];
  readonly ocrWeight: number | null;
  readonly vlmWeight: number | null;
  /** Address of the judge. Empty for none. */
  readonly endpoint: string;
  /** The judge model. Empty for the default. */
  readonly model: string;
}

/**
 * The reward section for flags. Raises UsageError for weights that contradict each other, ConfigError for settings that
 * cannot work.
 */
export function rewardFromFlags(flags: TermFlags): RewardSettings {
  const raw = {
    mode: null,
    terms: weighedTerms(flags),
    endpoint: flags.endpoint,
    ...(flags.model === '' ? {} : { model: flags.model }),
  };
  const parsed = rewardSchema.safeParse(raw);
  const problems = parsed.success
    ? rewardRules.flatMap((rule) => rule({ reward: parsed.data }))
    : problemsOf(parsed.error, rewardSchema, raw).map(({ key, message }) => ({ key: `reward.${key}`, message }));
  if (parsed.success && problems.length === 0) return parsed.data;
  throw configError(problems, { file: 'the flags', sets: [] });
}

function weighedTerms({ terms, ocrWeight, vlmWeight }: TermFlags): Record<string, unknown>[] {
  const given = terms.map((text) => {
    const [name, weight] = text.split('=', 2);
    return { name, weight: weight === undefined ? null : Number(weight) };
  });
  const named = given.map(({ name }) => termOf(name));
  const byRole = ocrWeight !== null || vlmWeight !== null;
  const whole = { ocr_weight: ocrWeight, vlm_weight: vlmWeight };
  if (named.length === 1) {
    // A term that combines both roles takes the weights as fields of its own.
    const own = Object.entries(whole).filter(
      ([field, weight]) => weight !== null && field in termKinds[named[0]].fields,
    );
    if (byRole && own.length === 0) {
      throw new UsageError('--ocr-weight and --vlm-weight weigh two terms, but --terms names one');
    }
    return [{ name: named[0], weight: 1, ...Object.fromEntries(own) }];
  }
  const withWeight = given.filter(({ weight }) => weight !== null).length;
  if (byRole && withWeight > 0) {
    throw new UsageError('weights are given twice: in --terms and as --ocr-weight or --vlm-weight');
  }
  if (byRole) return named.map((name) => ({ name, weight: roleWeight(name, { ocrWeight, vlmWeight }) }));
  if (withWeight > 0 && withWeight < given.length) {
    throw new UsageError(
      `${withWeight} of ${given.length} terms have a weight; allowed: all of them, or none (equal shares)`,
    );
  }
  return given.map(({ name, weight }) => ({ name, weight: weight ?? 1 / given.length }));
}

function termOf(name: string): TermName {
  const found = termNames.find((known) => known === name);
  if (found !== undefined) return found;
  const close = nearest(name, termNames);
  throw new UsageError(`unknown term '${name}'; allowed: ${termNames.join(', ')}`, {
    where: '--terms',
    ...(close === null ? {} : { next: `Did you mean ${close}?` }),
  });
}

type RoleWeights = Pick<TermFlags, 'ocrWeight' | 'vlmWeight'>;

/** The weight of a term, by its role: a judge's term or a word reader's. */
function roleWeight(name: TermName, { ocrWeight, vlmWeight }: RoleWeights): number {
  const [flag, weight] = termKinds[name].needs.judge
    ? ['--vlm-weight', vlmWeight]
    : name.startsWith('ocr')
      ? ['--ocr-weight', ocrWeight]
      : ['a weight in --terms', null];
  if (weight !== null) return Number(weight);
  throw new UsageError(`the term '${name}' has no weight: give ${String(flag)}`, {
    next: 'Or write the weights into --terms, such as ocr_confidence=0.6,align_quality=0.4.',
  });
}
