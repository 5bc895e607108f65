/** Rules about a policy that a server trains: what the server has, and what it cannot be told. */
import { problem, type Problem, type Reader, type Rule } from './rules.js';

export const servedTrainerRules: readonly Rule[] = [serverHasModel, ownTokenizer, plainSampling, oneProcess, noAverage];

const TRAINER = "policy.trainer 'tinker'";

function isServed(read: Reader): boolean {
  return read('policy.trainer.type') === 'tinker';
}

/** What must be null, and why. */
const served: Readonly<Record<string, string>> = {
  'policy.model': 'whose server has the model: policy.trainer.base_model names it',
  'policy.init': 'whose server has the model: policy.trainer.base_model names it',
  'policy.lora': 'whose adapter is policy.trainer.lora',
  'rollout.engine': 'whose server samples, too',
};

function serverHasModel(read: Reader): Problem[] {
  if (!isServed(read)) return [];
  return Object.entries(served).flatMap(([key, why]) => {
    const found = read(key);
    if (found === undefined || found === null) return [];
    return problem(key, `found a value with ${TRAINER}, ${why}; allowed: null`);
  });
}

function ownTokenizer(read: Reader): Problem[] {
  if (!isServed(read) || read('policy.tokenizer') !== null) return [];
  return problem(
    'policy.tokenizer',
    `found null with ${TRAINER}; allowed: a folder, {hub, revision} or {run, config} with the tokenizer of policy.trainer.base_model`,
  );
}

/** Servers differ in whether the log-probabilities of what they sample are those before or after such settings. */
const plain: Readonly<Record<string, number>> = { 'rollout.temperature': 1, 'rollout.top_p': 1, 'rollout.top_k': -1 };

function plainSampling(read: Reader): Problem[] {
  if (!isServed(read) || read('algorithm.type') === 'sft') return [];
  return Object.entries(plain).flatMap(([key, only]) => {
    const found = read(key);
    if (typeof found !== 'number' || found === only) return [];
    return problem(
      key,
      `found ${found} with ${TRAINER}, which trains on the distribution at temperature 1; allowed: ${only}`,
    );
  });
}

function oneProcess(read: Reader): Problem[] {
  const found = read('launch.processes');
  if (!isServed(read) || found === undefined || found === 1) return [];
  return problem(
    'launch.processes',
    `found ${JSON.stringify(found)} with ${TRAINER}, whose server does the computing; allowed: 1`,
  );
}

function noAverage(read: Reader): Problem[] {
  const found = read('optimizer.ema_decay');
  if (!isServed(read) || found === undefined || found === null) return [];
  return problem(
    'optimizer.ema_decay',
    `found ${JSON.stringify(found)} with ${TRAINER}, which keeps no average of the weights; allowed: null`,
  );
}
