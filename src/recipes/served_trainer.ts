/** Rules about a policy that a server trains: what the server has, and what it cannot be told. */
import type { TrainedSettings } from '../schema/run.js';
import type { TextPolicySettings } from '../schema/token_policy.js';
import type { RolloutSettings } from '../schema/training.js';
import {
  whenSet,
  validSection,
  problem,
  problemUnless,
  type PartialSettings,
  type Problem,
  type Rule,
} from './rules.js';

interface ServedSettings extends TrainedSettings {
  readonly rollout: RolloutSettings;
  readonly policy: Pick<TextPolicySettings, 'model' | 'lora' | 'tokenizer' | 'trainer'> & {
    readonly init: object | null;
  };
}

const TRAINER = "policy.trainer 'tinker'";

export const servedTrainerRules: readonly Rule<ServedSettings>[] = [
  serverHasModel,
  ownTokenizer,
  plainSampling,
  oneProcess,
  noAverage,
].map((rule) => (settings) => (settings.policy?.trainer?.type === 'tinker' ? rule(settings) : []));

function serverHasModel({ policy, rollout }: PartialSettings<ServedSettings>): readonly Problem[] {
  const served = [
    ['policy.model', policy?.model, 'whose server has the model: policy.trainer.base_model names it'],
    ['policy.init', validSection(policy?.init), 'whose server has the model: policy.trainer.base_model names it'],
    ['policy.lora', validSection(policy?.lora), 'whose adapter is policy.trainer.lora'],
    ['rollout.engine', validSection(rollout?.engine), 'whose server samples, too'],
  ] as const;
  return served.flatMap(([key, found, why]) =>
    whenSet([found], () => problem(key, `found a value with ${TRAINER}, ${why}; allowed: null`)),
  );
}

function ownTokenizer({ policy }: PartialSettings<ServedSettings>): readonly Problem[] {
  if (policy?.tokenizer !== null) return [];
  return problem(
    'policy.tokenizer',
    `found null with ${TRAINER}; allowed: a folder, {hub, revision} or {run, config} with the tokenizer of policy.trainer.base_model`,
  );
}

/** Servers differ in whether the log-probabilities of what they sample are those before or after such settings. */
const plain = { temperature: 1, top_p: 1, top_k: -1 } as const;

function plainSampling({ algorithm, rollout }: PartialSettings<ServedSettings>): readonly Problem[] {
  if (algorithm?.type === 'sft') return [];
  return (['temperature', 'top_p', 'top_k'] as const).flatMap((key) =>
    whenSet([rollout?.[key]], (found) =>
      problemUnless(
        found === plain[key],
        `rollout.${key}`,
        `found ${found} with ${TRAINER}, which trains on the distribution at temperature 1; allowed: ${plain[key]}`,
      ),
    ),
  );
}

function oneProcess({ launch }: PartialSettings<ServedSettings>): readonly Problem[] {
  return whenSet([launch?.processes], (found) =>
    problemUnless(
      found === 1,
      'launch.processes',
      `found ${JSON.stringify(found)} with ${TRAINER}, whose server does the computing; allowed: 1`,
    ),
  );
}

function noAverage({ optimizer }: PartialSettings<ServedSettings>): readonly Problem[] {
  return whenSet([optimizer?.ema_decay], (found) =>
    problem(
      'optimizer.ema_decay',
      `found ${found} with ${TRAINER}, which keeps no average of the weights; allowed: null`,
    ),
  );
}
