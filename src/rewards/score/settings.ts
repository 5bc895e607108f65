/** The settings that decide how episodes are scored. Light to import: the config assembles its schema from this. */
import { z } from 'zod';
import { operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';
import { isObject } from '../../core/schema/walk.js';
import { leavableFields } from '../judge/dialect.js';
import { defaultReplyTokens } from '../judge/prompts.js';
import type { TermKind } from '../terms/term.js';
import { termKinds, termNames, type TermName } from '../terms/table.js';

type FieldsOf<Name extends TermName> = (typeof termKinds)[Name]['fields'];

/** A term with its weight and its own fields with their defaults. */
export type TermSettings = {
  [Name in TermName]: { readonly name: Name; readonly weight: number } & {
    readonly [Field in keyof FieldsOf<Name>]: z.output<FieldsOf<Name>[Field]>;
  };
}[TermName];

/** The schema of one kind of term: its name and weight, and the kind's own fields. */
function termSchema({ name, description, fields }: TermKind): z.ZodObject {
  return z.strictObject({
    name: result(description, z.literal(name)),
    weight: result('Its share of the sum. The weights of all terms add up to 1.', positive),
    ...fields,
  });
}

const [firstKind, ...otherKinds]: readonly TermKind[] = Object.values(termKinds);
// A union of one variant per line of the table. Its type is the mapped type above, because inference over a list cannot give it.
const term = z.discriminatedUnion('name', [
  termSchema(firstKind),
  ...otherKinds.map(termSchema),
]) as unknown as z.ZodType<TermSettings>;

/** A term that measures answers: a term of a reward, without its weight. */
export type MeasureTerm = {
  [Name in TermName]: Omit<Extract<TermSettings, { name: Name }>, 'weight'>;
}[TermName];

function measureSchema(kind: TermKind): z.ZodObject {
  return termSchema(kind).omit({ weight: true });
}

export const measureTerms = z.array(
  z.discriminatedUnion('name', [
    measureSchema(firstKind),
    ...otherKinds.map(measureSchema),
  ]) as unknown as z.ZodType<MeasureTerm>,
);

/** Adds `measure` to a section about the evaluation of a policy. It trains nothing, so it may be added to a run at any time. */
export function withMeasure<Shape extends z.ZodRawShape>(
  validation: z.ZodPrefault<z.ZodObject<Shape, z.core.$strict>>,
): z.ZodPrefault<z.ZodObject<Shape & { measure: typeof measureField }, z.core.$strict>> {
  const extended = validation.unwrap().extend({ measure: measureField });
  return section(validation.description ?? '', extended.prefault({} as never)) as never;
}

const measureField = operation(
  "Terms that score held-out answers in addition to the reward, in evaluations and never in training. They compare a run before and after, or runs with different rewards. The first term decides which checkpoint is better; all are shown. A term without its own fields has the fields of the reward's term with that name. A term that asks a judge asks the judge of the reward.",
  measureTerms.default([]),
  { allowed: "a term's name, {name: 'ocr', …} with its fields, or a list of these" },
);

const promptFile = z.string().min(1).nullable().default(null);
/** The content of the file decides the result, not its path. */
const text = { file: 'text' } as const;

export const promptFiles = section(
  "Files with other wordings of the judge's prompts. null means the built-in wording.",
  z
    .strictObject({
      viescore_sc: result(
        'Semantic consistency: source and edit. The instruction is added at the end.',
        promptFile,
        text,
      ),
      viescore_pq: result('Perceptual quality: the edit alone.', promptFile, text),
      ground_score: result('Agreement with the labeled edit.', promptFile, text),
    })
    .prefault({}),
);

const replyTokens = section(
  'Longest replies of the judge, in tokens. A reply that ends before its scores is requested again with twice as many tokens, or four times as many if the judge was still thinking.',
  z
    .strictObject({
      viescore: result("For each of VIEScore's two questions.", positiveInteger.default(defaultReplyTokens.viescore)),
      ground_score: result(
        'For the question of the ground score.',
        positiveInteger.default(defaultReplyTokens.ground_score),
      ),
    })
    .prefault({}),
);

const leaveOut = result(
  'Fields to leave out of requests to judges because the server rejects them; its error message names the field. Without max_completion_tokens the limit of a reply is sent as max_tokens.',
  z.array(z.enum(leavableFields)).default([]),
  { allowed: `a list of ${leavableFields.join(', ')}` },
);

/** The fields of `reward` that determine what is scored and how. The judge's address belongs to the config. */
export const rewardFields = {
  mode: result(
    'The single reward of the policy, on its native scale and with the defaults of its fields. null if terms are given.',
    z.enum(termNames).nullable().default('viescore'),
  ),
  terms: section(
    'Several weighted rewards instead of mode: the weighted sum of their values from 0 to 1. The weights sum to 1.',
    z.array(term).default([]),
  ),
  also_compute: result(
    'Rewards to compute and record in addition, with the defaults of their fields. They do not decide.',
    z.array(z.enum(termNames)).default([]),
  ),
  prompts: promptFiles,
  max_reply_tokens: replyTokens,
  leave_out: leaveOut,
  zero_if_unfinished: result(
    'An answer that reaches the length limit scores 0 without a judge call.',
    z.boolean().default(true),
  ),
};

export const rewardSettingsSchema = z.strictObject(rewardFields);

export type RewardSettings = z.output<typeof rewardSettingsSchema>;
/** The settings that decide which terms score an episode. */
export type RewardChoice = Pick<RewardSettings, 'mode' | 'terms' | 'also_compute' | 'zero_if_unfinished'> & {
  /** Terms that score held-out answers in addition (`validation.measure`). Absent means none. */
  readonly measure?: readonly MeasureTerm[];
};

/** Equal spellings of a mode's name: spaces, and `*` for the `x` of sqrt(viescore_pqxground_score). */
export function canonicalMode(mode: unknown): unknown {
  if (typeof mode !== 'string') return mode;
  return mode.replace(/\s/g, '').replace('viescore_pq*ground_score', 'viescore_pqxground_score');
}

/** A term with the canonical form of its name. */
function canonicalTerm(term: unknown): unknown {
  return isObject(term) && 'name' in term ? { ...term, name: canonicalMode(term['name']) } : term;
}

/** The terms of a reward section in canonical form: names in one spelling, and no mode beside terms. */
export function canonicalTerms(reward: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const { terms, also_compute: recorded } = reward;
  const isWeighted = Array.isArray(terms) && terms.length > 0;
  const mode = 'mode' in reward ? { mode: canonicalMode(reward['mode']) } : isWeighted ? { mode: null } : {};
  return {
    ...(Array.isArray(terms) ? { terms: terms.map(canonicalTerm) } : {}),
    ...(Array.isArray(recorded) ? { also_compute: recorded.map(canonicalMode) } : {}),
    ...mode,
  };
}

/**
 * `measure` as a list of terms, from a single term or from names. A term has the fields of the reward's term of that name, except for those
 * that it sets itself: one name means one quantity in a run. `rewardTerms`: `reward.terms` in canonical form.
 */
export function canonicalMeasure(measure: unknown, rewardTerms?: unknown): unknown {
  const terms = Array.isArray(measure) ? (measure as readonly unknown[]) : [measure];
  const trained = (Array.isArray(rewardTerms) ? rewardTerms : []).filter(isObject);
  const named = terms.map((term) => canonicalTerm(typeof term === 'string' ? { name: term } : term));
  return named.map((given) => {
    if (!isObject(given)) return given;
    const namesakes = trained.filter(({ name }) => name === given['name']);
    // Several terms of one name have different fields, so none of them is preferred.
    const inherited = Object.entries(namesakes.length === 1 ? namesakes[0] : {});
    return { ...Object.fromEntries(inherited.filter(([key]) => key !== 'weight')), ...given };
  });
}
