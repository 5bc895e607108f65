/** The reward settings, with the judge's address. */
import { z } from 'zod';
import { nonNegative, operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';
import { endpointSchema, modelAliasSchema } from '../judge/endpoints.js';
import { rewardFields, type MeasureTerm } from '../score/settings.js';

/** The judge's address, and the limits for requests to it. */
const asking = {
  endpoint: operation(
    "Base URL of the judge's OpenAI-compatible server (/v1 is added to a bare host), or a list of such URLs for equal judges. {node_file, port} waits for a file and reads the host from its first line. 'embedded' starts the rule judge of the tiny world. Needed if the reward asks a judge. An SFT run without it reports losses only.",
    endpointSchema.default(''),
    {
      allowed: "a URL such as http://HOST:4877, a list of such URLs, {node_file: 'FILE', port: 4877}, or 'embedded'",
    },
  ),
  model: result('Name of the judge model on its server.', z.string().min(1).default('Qwen/Qwen2.5-VL-72B-Instruct')),
  model_alias: operation(
    'Other names that the judge may report, as a proxy, a deployment or a server with several names for one model does: a list of names, or true for any name. With either, the server need not list the model. false accepts answers only from the requested model.',
    modelAliasSchema,
    { allowed: "true, false, or a list of names such as ['qwen2.5-vl-72b']" },
  ),
  max_unscored_fraction: operation(
    'If more than this share of episodes is unscored, the run waits for the judge.',
    z.number().min(0).max(1).default(0.2),
  ),
  max_wait_s: operation(
    'How long the run waits before it saves a checkpoint and exits with code 3, in seconds.',
    nonNegative.default(7200),
  ),
  timeout_s: operation(
    'Time limit of one request to the judge, in seconds. A question may take as long as all its attempts and the pauses between them.',
    positive.default(120),
  ),
  max_attempts: operation('Requests for one judgement before it counts as unscored.', positiveInteger.default(5)),
  concurrency: operation('Highest number of requests in flight.', positiveInteger.default(64)),
  max_judge_calls: operation(
    'Highest number of judge requests in all attempts of a run, including repeated requests and requests for reward.recheck_every_min. A run that needs more does not start. A run that reaches the limit saves a checkpoint and pauses; raise the limit to continue. null means no limit.',
    positiveInteger.nullable().default(null),
  ),
  recheck_every_min: operation(
    'How often a run whose reward passed an exam (editrl judge exam) repeats 20 edits of the exam, in minutes. It warns if the judge answers differently. null means never.',
    positive.nullable().default(30),
  ),
};

export const reward = section('What scores an edit.', z.strictObject({ ...rewardFields, ...asking }).prefault({}));

/** For text answers: any reward may score them, and an answer that reaches the length limit is scored, too. */
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
  /** Terms that score held-out answers in addition (`validation.measure`). Absent means none. */
  readonly measure?: readonly MeasureTerm[];
};

/** The reward of a run with the terms that score its held-out answers in addition. */
export function measuredReward(settings: {
  readonly reward: RewardSettings;
  readonly validation: { readonly measure?: readonly MeasureTerm[] };
}): RewardSettings {
  return { ...settings.reward, measure: settings.validation.measure ?? [] };
}
