/** Rules about combinations of reward settings. */
import type { RewardSettings } from '../../../rewards/schema/reward.js';
import {
  decidingKinds,
  fieldsWithoutDefault,
  ownFields,
  termName,
  termsThatAsk,
} from '../../../rewards/score/choice.js';
import type { MeasureTerm, RewardChoice, TermSettings } from '../../../rewards/score/settings.js';
import type { TermKind } from '../../../rewards/terms/term.js';
import { termKinds, termNames, type TermName } from '../../../rewards/terms/table.js';
import type { GrpoSettings, WordsSftSettings } from '../../../config/schema/algorithm.js';
import type { TrainedSettings } from '../../../config/schema/run.js';
import type { TextPolicySettings } from '../../../config/schema/token_policy.js';
import { problem, type PartialSettings, type Problem, type Rule } from '../../../config/schema/rules.js';

/** The settings that rules about a reward read. */
interface RewardedSettings {
  readonly task: string;
  readonly reward: RewardSettings;
  readonly validation: TrainedSettings['validation'] & Pick<RewardSettings, 'measure'>;
  readonly algorithm: GrpoSettings | WordsSftSettings;
}

interface ThinkingSettings extends RewardedSettings {
  readonly policy: Pick<TextPolicySettings, 'thinking'>;
}

type Choice = Required<Pick<RewardChoice, 'mode' | 'terms' | 'also_compute' | 'measure'>>;

/** Largest difference from 1 of a sum of hand-written weights. */
const weightTolerance = 1e-6;

/** The config's reward. Null if one of its parts is invalid by itself. */
function rewardChoice({ reward, validation }: PartialSettings<RewardedSettings>): Choice | null {
  // A reward server has no measures, but its terms still have to follow the rules.
  const { mode, terms, also_compute } = reward ?? {};
  if (mode === undefined || terms === undefined || also_compute === undefined) return null;
  return { mode, terms, also_compute, measure: validation?.measure ?? [] };
}

/** Rules for reward sections in any config. */
export const rewardRules: readonly Rule<RewardedSettings>[] = [terms, endpoint];

function terms(settings: PartialSettings<RewardedSettings>): Problem[] {
  const choice = rewardChoice(settings);
  if (choice === null) return [];
  const contradiction = modeOrTerms(choice);
  if (contradiction.length > 0) return contradiction;
  return [weights, repeated, withoutFields, conflicts, deciding].flatMap((rule) => rule(choice));
}

/** The lists of terms that have fields, by their keys. */
function termLists({
  terms,
  measure,
}: Choice): readonly (readonly [string, readonly (TermSettings | MeasureTerm)[]])[] {
  return [
    ['reward.terms', terms],
    ['validation.measure', measure],
  ];
}

/**
 * Reports terms of kinds that a recipe cannot use, separately for terms that decide and for measures of held-out
 * answers.
 */
function unsuitable(choice: Choice, isSo: (kind: TermKind) => boolean, say: (names: string) => string): Problem[] {
  const found = (kinds: readonly TermKind[], key: string): Problem[] => {
    const names = kinds.filter(isSo).map(({ name }) => name);
    return names.length === 0 ? [] : problem(key, say(names.join("', '")));
  };
  return [
    ...found(decidingKinds(choice), choice.mode === null ? 'reward.terms' : 'reward.mode'),
    ...found(
      choice.measure.map(({ name }) => termKinds[name]),
      'validation.measure',
    ),
  ];
}

function modeOrTerms({ mode, terms }: Choice): Problem[] {
  if (mode !== null && terms.length > 0) {
    return problem(
      'reward.terms',
      `found together with reward.mode '${mode}'; allowed: one of the two. To weight terms, remove mode or set it to null`,
    );
  }
  if (mode !== null || terms.length > 0) return [];
  return problem(
    'reward.mode',
    "found null without reward.terms; allowed: a mode such as 'viescore', or terms: [{name, weight, …}]",
  );
}

function weights({ terms }: Choice): Problem[] {
  const sum = terms.reduce((total, { weight }) => total + weight, 0);
  if (terms.length === 0 || Math.abs(sum - 1) <= weightTolerance) return [];
  const found = Number(sum.toPrecision(8));
  const written = terms.length === 1 ? '' : ` (${terms.map(({ weight }) => weight).join(' + ')})`;
  return problem('reward.terms', `the weights sum to ${found}${written}; allowed: a sum of 1`);
}

function repeated(choice: Choice): Problem[] {
  return termLists(choice).flatMap(([key, terms]) => {
    const names = terms.map(termName);
    return names.flatMap((name, index) => {
      const first = names.indexOf(name);
      if (first === index) return [];
      if (terms[index].name === 'module') {
        const other = `like those of ${key}.${first}; allowed: a file with another name`;
        return problem(`${key}.${index}.module`, `its metrics would be named '${name}', ${other}`);
      }
      const once = key === 'reward.terms' ? 'each term once, with the sum of both weights' : 'each term once';
      return problem(`${key}.${index}.name`, `found '${name}' again, after ${key}.${first}; allowed: ${once}`);
    });
  });
}

/** Terms given by `mode` or `also_compute` cannot have fields. */
function withoutFields({ mode, also_compute }: Choice): Problem[] {
  const bare: readonly (readonly [string, TermName])[] = [
    ...(mode === null ? [] : [['reward.mode', mode] as const]),
    ...also_compute.map((name, index) => [`reward.also_compute.${index}`, name] as const),
  ];
  return bare.flatMap(([key, name]) => {
    const fields = fieldsWithoutDefault(name);
    if (fields.length === 0) return [];
    const term = `{name: '${name}', weight: 1, ${fields.map((field) => `${field}: …`).join(', ')}}`;
    return problem(key, `found '${name}', which needs ${fields.join(', ')}; write it as reward.terms: [${term}]`);
  });
}

/** A term that is only recorded cannot be part of the reward. */
function deciding(choice: Choice): Problem[] {
  const names = decidingKinds(choice).flatMap(({ name, recordedOnly }) => (recordedOnly === true ? [name] : []));
  if (names.length === 0) return [];
  return problem(
    choice.mode === null ? 'reward.terms' : 'reward.mode',
    `found '${names.join("', '")}', which is only recorded, never learned from; allowed: in reward.also_compute and validation.measure`,
  );
}

/** For recipes that generate images from text alone. */
export const noSource: Rule<RewardedSettings> = (settings) => {
  const choice = rewardChoice(settings);
  if (choice === null || modeOrTerms(choice).length > 0) return [];
  return unsuitable(
    choice,
    ({ needs }) => needs.source || needs.truth,
    (names) =>
      `'${names}' compares with a source or a labeled image, and task '${String(settings.task)}' has neither; allowed: clip, align_quality, or any term that needs neither`,
  );
};

/** Fields of a term that contradict each other. */
function conflicts(choice: Choice): Problem[] {
  return termLists(choice).flatMap(([key, terms]) =>
    terms.flatMap((term, index) => {
      const kind: TermKind = termKinds[term.name];
      const found = kind.conflict?.(ownFields(term)) ?? null;
      return found === null ? [] : problem(`${key}.${index}.${found.field}`, found.message);
    }),
  );
}

/** For recipes whose datasets have no labeled words. */
export const noLabeledWords: Rule<RewardedSettings> = (settings) => {
  const choice = rewardChoice(settings);
  if (choice === null || modeOrTerms(choice).length > 0) return [];
  return unsuitable(
    choice,
    ({ needs }) => needs.words === true,
    (names) =>
      `'${names}' compares with a labeled answer in words, but the datasets of task '${String(settings.task)}' contain images`,
  );
};

/** For recipes whose answers are words. */
export const noImages: Rule<RewardedSettings> = (settings) => {
  const choice = rewardChoice(settings);
  if (choice === null || modeOrTerms(choice).length > 0) return [];
  const allowed = termNames.filter((name) => {
    const kind: TermKind = termKinds[name];
    return kind.reads !== 'image' && kind.recordedOnly !== true;
  });
  return unsuitable(
    choice,
    ({ reads }) => reads === 'image',
    (names) =>
      `'${names}' reads an image, but the answers of task '${String(settings.task)}' are words; allowed: ${allowed.join(', ')}`,
  );
};

/** For recipes that hide thoughts from rewards. A term that looks for thoughts would never find any. */
export const thoughtsOnce: Rule<ThinkingSettings> = (settings) => {
  const choice = rewardChoice(settings);
  if (choice === null || modeOrTerms(choice).length > 0) return [];
  if (settings.policy?.thinking?.open !== '<think>') return [];
  const kinds = [...decidingKinds(choice), ...choice.measure.map(({ name }) => termKinds[name])];
  if (!kinds.some(({ name }) => name === 'format_accuracy')) return [];
  return problem(
    'policy.thinking',
    "found with the term 'format_accuracy', which checks <think>…</think> and would get only the text after it; allowed: null",
  );
};

function endpoint(settings: PartialSettings<RewardedSettings>): Problem[] {
  const value = settings.reward?.endpoint;
  if (value === '') {
    const choice = rewardChoice(settings);
    if (choice === null) return [];
    const asking = termsThatAsk(choice);
    const [trainedOn] = termsThatAsk({ ...choice, measure: [] });
    const learns = settings.algorithm?.type === 'grpo' || settings.algorithm?.type === 'ppo';
    // Without a judge, a supervised run scores and measures no answers.
    if (asking.length === 0 || (!learns && choice.measure.length === 0)) return [];
    return problem(
      'reward.endpoint',
      `empty, but ${trainedOn === undefined ? 'validation.measure' : 'reward'} '${trainedOn ?? asking[0]}' needs a judge${learns || trainedOn === undefined ? '' : ' (without one, no held-out answers are scored)'}: export APP__REWARD_FUNCTION_API_BASE=http://HOST:4877 or set it here; 'embedded' starts the rule judge of the tiny world`,
    );
  }
  if (value === 'embedded') {
    const choice = rewardChoice(settings);
    const asking = choice === null ? [] : termsThatAsk(choice).map((name): TermKind => termKinds[name]);
    const beyond = asking.find(({ reads, asksModel = false }) => reads === 'words' || asksModel);
    if (beyond === undefined) return [];
    const [what, model] =
      beyond.reads === 'words'
        ? ['judges answers in words', 'language model']
        : ['asks in the words of a prompt file', 'judge'];
    return problem(
      'reward.endpoint',
      `found 'embedded', but '${beyond.name}' ${what}, and the rule judge of the tiny world cannot; allowed: the URL of a ${model}, such as http://HOST:4877`,
    );
  }
  const addresses: readonly unknown[] = Array.isArray(value) ? value : typeof value === 'string' ? [value] : [];
  const wrong = addresses.filter((address) => !isUrl(address) && (address !== 'embedded' || Array.isArray(value)));
  if (wrong.length === 0) return [];
  return problem(
    'reward.endpoint',
    `found '${wrong.join("', '")}'; allowed: an http(s) URL such as http://HOST:4877, a list of such URLs, or 'embedded'`,
  );
}

function isUrl(address: unknown): boolean {
  return typeof address === 'string' && URL.canParse(address) && /^https?:$/.test(new URL(address).protocol);
}
