/** Rules about a policy that a server trains: what the server has, and what it cannot be told. */
import { getPath } from '../schema/paths.js';
import type { RunSettings, TrainedSettings } from '../schema/run.js';
import type { TextPolicySettings } from '../schema/token_policy.js';
import type { ServeTrainerSettings, TinkerSettings } from '../schema/trainer.js';
import type { RolloutSettings } from '../schema/training.js';
import { isObject } from '../schema/walk.js';
import {
  whenSet,
  validSection,
  problem,
  problemUnless,
  type PartialSettings,
  type Problem,
  type Rule,
} from '../schema/rules.js';

interface ServedSettings extends TrainedSettings {
  readonly rollout: RolloutSettings;
  readonly policy: Pick<TextPolicySettings, 'model' | 'lora' | 'tokenizer' | 'trainer'> & {
    readonly init: object | null;
  };
}

const TRAINER = "policy.trainer 'tinker'";
const SERVE = 'policy.trainer.serve';

/** What a server that is started with a run is told by this program, and by no flag. */
const OWN_FLAGS = ['--model', '--rank', '--port', '--dir', '--mode', '--env', '--host'] as const;

/** The trainer of a run that a server trains; null for any other run. */
export function trainerServerOf(settings: RunSettings): TinkerSettings | null {
  const trainer = getPath(settings, 'policy.trainer');
  return isObject(trainer) && trainer['type'] === 'tinker' ? (trainer as TinkerSettings) : null;
}

/** How the training server of a run is started with it; null where none is. */
export function trainerServeOf(settings: RunSettings): ServeTrainerSettings | null {
  return trainerServerOf(settings)?.serve ?? null;
}

export const servedTrainerRules: readonly Rule<ServedSettings>[] = [
  serverHasModel,
  ownTokenizer,
  plainSampling,
  oneProcess,
  noAverage,
  oneAddress,
  ownFlags,
  ownCommand,
  ownDevices,
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

function oneAddress({ policy }: PartialSettings<ServedSettings>): readonly Problem[] {
  return whenSet([policy?.trainer?.base_url, validSection(policy?.trainer?.serve)], (url) =>
    problem(
      'policy.trainer',
      `found both base_url (${url}) and serve; allowed: base_url, the address of a training server that runs, or serve: {}, to start one with the run`,
    ),
  );
}

function ownFlags({ policy }: PartialSettings<ServedSettings>): readonly Problem[] {
  return whenSet([policy?.trainer?.serve?.flags], (flags) => {
    const taken = flags.find((flag) => OWN_FLAGS.some((own) => flag === own || flag.startsWith(`${own}=`)));
    if (taken === undefined) return [];
    return problem(
      `${SERVE}.flags`,
      `found ${taken}, which is given by the settings: base_model, lora.rank, serve.mode, serve.python, and a free port and the run's folder; allowed: other arguments`,
    );
  });
}

function ownCommand({ policy }: PartialSettings<ServedSettings>): readonly Problem[] {
  return whenSet([validSection(policy?.trainer?.serve), policy?.trainer?.serve?.command], ({ mode, python }) => {
    const found = [...(mode === null ? [] : ['mode']), ...(python === null ? [] : ['python'])];
    return found.flatMap((key) =>
      problem(
        `${SERVE}.${key}`,
        `found a value with ${SERVE}.command, which is another program than scripts/serve_skyrl; allowed: null, with what that program takes in command or flags`,
      ),
    );
  });
}

function ownDevices({ policy, launch }: PartialSettings<ServedSettings>): readonly Problem[] {
  return whenSet([policy?.trainer?.serve?.devices, launch?.devices], (served, used) => {
    const shared = served.filter((device) => used.includes(device));
    if (shared.length === 0) return [];
    return problem(
      `${SERVE}.devices`,
      `found ${shared.join(', ')}, which the run itself uses (launch.devices); allowed: GPUs of its own`,
    );
  });
}
