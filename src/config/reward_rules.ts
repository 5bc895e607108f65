/** Combinations of reward settings that cannot work. */
import { decidingKinds, fieldsWithoutDefault, ownFields } from '../rewards/choice.js';
import type { RewardChoice } from '../rewards/settings.js';
import type { TermKind } from '../rewards/term.js';
import { termKinds, type TermName } from '../rewards/terms/table.js';
import type { Problem } from './problems.js';
import type { Reader } from './rules.js';

type Choice = Pick<RewardChoice, 'mode' | 'terms' | 'also_compute'>;

/** How far a sum of weights that were written by hand may be from 1. */
const weightTolerance = 1e-6;

/** What the config says about its reward; null where a part of it is wrong by itself. */
export function rewardChoice(read: Reader): Choice | null {
  const choice = {
    mode: read.value('reward.mode'),
    terms: read.value('reward.terms'),
    also_compute: read.value('reward.also_compute'),
  };
  return Object.values(choice).includes(undefined) ? null : (choice as Choice);
}

export function rewardProblems(read: Reader): Problem[] {
  const choice = rewardChoice(read);
  if (choice === null) return [];
  const contradiction = modeOrTerms(choice);
  if (contradiction !== null) return [contradiction];
  const weights = weightProblem(choice);
  return [
    ...(weights === null ? [] : [weights]),
    ...repeated(choice),
    ...withoutFields(choice),
    ...conflicts(choice),
    ...withoutWords(choice, read),
  ];
}

function modeOrTerms({ mode, terms }: Choice): Problem | null {
  if (mode !== null && terms.length > 0) {
    return {
      key: 'reward.terms',
      message: `found besides reward.mode '${mode}'; allowed: one of the two. Remove mode, or set it to null, to weigh terms`,
    };
  }
  if (mode === null && terms.length === 0) {
    return {
      key: 'reward.mode',
      message: "found null without reward.terms; allowed: a mode such as 'viescore', or terms: [{name, weight, …}]",
    };
  }
  return null;
}

function weightProblem({ terms }: Choice): Problem | null {
  const sum = terms.reduce((total, { weight }) => total + weight, 0);
  if (terms.length === 0 || Math.abs(sum - 1) <= weightTolerance) return null;
  const found = Number(sum.toPrecision(8));
  const written = terms.map(({ weight }) => weight).join(' + ');
  return {
    key: 'reward.terms',
    message: `the weights sum to ${found}${terms.length === 1 ? '' : ` (${written})`}; allowed: weights that sum to 1`,
  };
}

function repeated({ terms }: Choice): Problem[] {
  const names = terms.map(({ name }) => name);
  return names.flatMap((name, index) => {
    const first = names.indexOf(name);
    if (first === index) return [];
    return [
      {
        key: `reward.terms.${index}.name`,
        message: `found '${name}', which reward.terms.${first} is already; allowed: each term once, with the sum of both weights`,
      },
    ];
  });
}

/** A mode, and what is computed besides, has no place for fields. */
function withoutFields({ mode, also_compute }: Choice): Problem[] {
  const bare: readonly (readonly [string, TermName])[] = [
    ...(mode === null ? [] : [['reward.mode', mode] as const]),
    ...also_compute.map((name, index) => [`reward.also_compute.${index}`, name] as const),
  ];
  return bare.flatMap(([key, name]) => {
    const fields = fieldsWithoutDefault(name);
    if (fields.length === 0) return [];
    const term = `{name: '${name}', weight: 1, ${fields.map((field) => `${field}: …`).join(', ')}}`;
    return [{ key, message: `found '${name}', which needs ${fields.join(', ')}; write it as reward.terms: [${term}]` }];
  });
}

/** Fields of a term that do not go together. */
function conflicts({ terms }: Choice): Problem[] {
  return terms.flatMap((term, index) => {
    const kind: TermKind = termKinds[term.name];
    const found = kind.conflict?.(ownFields(term)) ?? null;
    return found === null ? [] : [{ key: `reward.terms.${index}.${found.field}`, message: found.message }];
  });
}

/** The episodes of image edits are judged by their images: their datasets hold no labelled words. */
function withoutWords(choice: Choice, read: Reader): Problem[] {
  if (read.value('task') !== 'image_edit_tokens') return [];
  const names = decidingKinds(choice).flatMap(({ name, needs }) => (needs.words === true ? [name] : []));
  if (names.length === 0) return [];
  return [
    {
      key: choice.mode === null ? 'reward.terms' : 'reward.mode',
      message: `'${names.join("', '")}' compares with a labelled answer in words, but the datasets of task 'image_edit_tokens' hold images`,
    },
  ];
}

/** Normalising each term by itself needs terms, and divides by their standard deviations. */
export function perTermProblems(read: Reader): Problem[] {
  const choice = rewardChoice(read);
  if (choice === null || read.value('algorithm.advantage.per_term') !== true) return [];
  const key = 'algorithm.advantage.per_term';
  const problems: Problem[] = [];
  if (choice.terms.length === 0) {
    problems.push({ key, message: 'found true, but there are no reward.terms to be normalised one by one' });
  }
  const scale = read.value('algorithm.advantage.scale');
  if (typeof scale === 'string' && scale !== 'std') {
    problems.push({
      key,
      message: `found true with algorithm.advantage.scale '${scale}'; allowed: only with 'std', which is then that of each term`,
    });
  }
  return problems;
}
