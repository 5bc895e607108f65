/** The reward from a config or from flags, for verbs that score without training. */
import { UsageError } from '../../core/errors.js';
import { rewardFromFlags } from '../../launch/reward/flags.js';
import { rewardOf } from '../../recipes/settings.js';
import type { RewardSettings } from '../../rewards/schema/reward.js';
import { configOf, numberOf, text, type Arguments } from './verb.js';

export interface NamedReward {
  readonly settings: RewardSettings;
  /** The directory of runs that its terms may take models from. */
  readonly runs: string;
}

/** The reward of the flags --terms, --ocr-weight, --vlm-weight, --endpoint and --model. Raises the errors of `rewardFromFlags`. */
export function rewardOfFlags(args: Arguments, terms = text(args, 'terms')): NamedReward {
  const settings = rewardFromFlags({
    terms: terms.split(',').map((name) => name.trim()),
    ocrWeight: numberOf(args, 'ocr-weight'),
    vlmWeight: numberOf(args, 'vlm-weight'),
    endpoint: text(args, 'endpoint'),
    model: text(args, 'model'),
  });
  return { settings, runs: process.env['APP__BASE_EXP_DIR'] ?? 'runs' };
}

/** The reward of the config that the options of `configOptions` name. Raises UsageError for a config without one. */
export async function rewardOfConfig(args: Arguments): Promise<NamedReward> {
  const { settings } = await configOf(args);
  const reward = rewardOf(settings);
  if (reward !== null) return { settings: reward, runs: settings.base_exp_dir };
  throw new UsageError(`task '${settings.task}' has no reward`, {
    where: text(args, 'config'),
    next: 'Name a config with a reward.',
  });
}
