/** What scores an edit, and where the judge is. */
import { z } from 'zod';
import { nonNegative, operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';
import { endpointSchema, modelAliasSchema } from '../judge/endpoints.js';
import { rewardFields, type MeasureTerm } from '../score/settings.js';

/** Where the judge is, and how it is asked. */
const asking = {
  endpoint: operation(
    "Base URL of the judge's OpenAI-compatible server (/v1 is added to a bare host); a list of such URLs names equal judges; {node_file, port} reads the host from the first line of a file, and waits for it; 'embedded' starts the rule judge of the tiny world. Needed where a reward asks the judge; an SFT run without one then reports losses only.",
    endpointSchema.default(''),
    {
      allowed: "a URL such as http://HOST:4877, a list of such URLs, {node_file: 'FILE', port: 4877}, or 'embedded'",
    },
  ),
  model: result('The judge model, as its server names it.', z.string().min(1).default('Qwen/Qwen2.5-VL-72B-Instruct')),
  model_alias: operation(
    'Other names by which the judge may answer, as a proxy, a deployment or a server with several names for one model does: a list of them, or true for any. With either the model need not be listed by the name that it is asked by. false refuses the answers of any other model.',
    modelAliasSchema,
    { allowed: "true, false, or a list of names such as ['qwen2.5-vl-72b']" },
  ),
  max_unscored_fraction: operation(
    'Above this share of unscored episodes the run waits for the judge.',
    z.number().min(0).max(1).default(0.2),
  ),
  max_wait_s: operation('How long it waits before it checkpoints and exits 3, in seconds.', nonNegative.default(7200)),
  timeout_s: operation(
    'Deadline of one request to the judge, in seconds; a question may take as long as all its attempts and the pauses between them.',
    positive.default(120),
  ),
  max_attempts: operation('Requests made for one judgement before it counts as unscored.', positiveInteger.default(5)),
  concurrency: operation('Requests in flight at once.', positiveInteger.default(64)),
  max_judge_calls: operation(
    'The most requests that judges may get from a run in all of its attempts, repeated ones and those of reward.recheck_every_min included: a run that would need more is refused before it starts, and one that comes to it pauses with a checkpoint and goes on once this is raised. null means no limit.',
    positiveInteger.nullable().default(null),
  ),
  recheck_every_min: operation(
    'How often a run whose reward has had an exam (editrl judge exam) asks 20 edits of the exam again, in minutes, and warns when the judge answers otherwise than then. null means never.',
    positive.nullable().default(30),
  ),
};

export const reward = section('What scores an edit.', z.strictObject({ ...rewardFields, ...asking }).prefault({}));

/** For answers in words: nothing is assumed about what scores them, and an answer that is cut off is scored as far as it goes. */
export const wordsReward = section(
  'What scores an answer in words.',
  z
    .strictObject({
      ...rewardFields,
      mode: result(rewardFields.mode.description ?? '', rewardFields.mode.unwrap().default(null)),
      zero_if_unfinished: result(
        rewardFields.zero_if_unfinished.description ?? '',
        rewardFields.zero_if_unfinished.unwrap().default(false),
      ),
      ...asking,
    })
    .prefault({}),
);

export type RewardSettings = z.output<typeof reward> & {
  /** What held-out answers are scored by besides (`validation.measure`); nothing where absent. */
  readonly measure?: readonly MeasureTerm[];
};

/** The reward of a run with what its held-out answers are scored by besides. */
export function measuredReward(settings: {
  readonly reward: RewardSettings;
  readonly validation: { readonly measure?: readonly MeasureTerm[] };
}): RewardSettings {
  return { ...settings.reward, measure: settings.validation.measure ?? [] };
}
