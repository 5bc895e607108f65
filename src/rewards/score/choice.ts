/** Which terms a config's reward section chooses. Pure, and as light as the schema. */
import { z } from 'zod';
import { imagesOfEdit, imagesShown } from '../judge/judge.js';
import { alignReplyTokens } from '../judge/prompts.js';
import type { MeasureTerm, RewardChoice, RewardSettings, TermSettings } from './settings.js';
import type { TermKind } from '../terms/term.js';
import { termKinds, type TermName } from '../terms/table.js';

/** A chosen term, not created yet. */
export interface ChosenTerm {
  readonly kind: TermKind;
  /** Its name among the terms, used for its parts and its metrics. */
  readonly name: string;
  /** The kind's own fields, defaulted. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** 1 where the term decides alone. */
  readonly weight: number;
}

type Choice = Pick<RewardChoice, 'mode' | 'terms' | 'also_compute' | 'measure'>;
type Deciding = Pick<Choice, 'mode' | 'terms'>;

/** The terms that decide: the mode's, or the weighted ones. Empty if the settings name neither. */
export function decidingTerms({ mode, terms }: Deciding): ChosenTerm[] {
  if (terms.length === 0) return mode === null ? [] : [byDefault(mode)];
  return terms.map((term) => ({
    kind: termKinds[term.name],
    name: termName(term),
    fields: ownFields(term),
    weight: term.weight,
  }));
}

/** The terms that are only recorded: those of `also_compute` that do not decide. */
export function recordedTerms(choice: Choice): ChosenTerm[] {
  const names: readonly string[] = decidingTerms(choice).map(({ name }) => name);
  return [...new Set(choice.also_compute)].filter((name) => !names.includes(name)).map((name) => byDefault(name));
}

/** The terms that held-out answers are measured by. */
export function measuredTerms({ measure = [] }: Pick<Choice, 'measure'>): ChosenTerm[] {
  return measure.map((term) => ({
    kind: termKinds[term.name],
    name: termName(term),
    fields: ownFields(term),
    weight: 1,
  }));
}

/** What a term is called among the others. */
export function termName(term: MeasureTerm | TermSettings): string {
  const kind: TermKind = termKinds[term.name];
  return kind.nameOf?.(ownFields(term)) ?? kind.name;
}

/** All of them: those that decide, those that are only recorded, and those that held-out answers are measured by. */
export function chosenTerms(choice: Choice): ChosenTerm[] {
  return [...decidingTerms(choice), ...recordedTerms(choice), ...measuredTerms(choice)];
}

/** The kinds of the terms that decide. */
export function decidingKinds({ mode, terms }: Pick<Choice, 'mode' | 'terms'>): TermKind[] {
  if (terms.length === 0) return mode === null ? [] : [termKinds[mode]];
  return terms.map(({ name }) => termKinds[name]);
}

/** The chosen terms that ask the run's judge, recorded ones and measures included. */
export function termsThatAsk({ mode, terms, also_compute, measure = [] }: Choice): TermName[] {
  const bare = [...(mode === null || terms.length > 0 ? [] : [mode]), ...also_compute];
  return [
    ...[...terms, ...measure].filter(asksRunsJudge).map(({ name }) => name),
    ...bare.filter((name) => termKinds[name].needs.judge),
  ];
}

/**
 * The most questions that judges are asked about a group of so many answers (1: one that stands alone) that these terms score: the run's judge
 * and those of their own.
 */
export function questionsOf(terms: readonly ChosenTerm[], answers: number): number {
  const asked = new Set<string>();
  let grouped = 0;
  for (const { kind, name, fields } of terms) {
    if (!kind.needs.judge) continue;
    if (kind.questions !== undefined) grouped += kind.questions(fields, answers);
    const own = kind.ownJudge?.(fields) === true ? name : '';
    const names = kind.asks?.(fields) ?? (kind.questions === undefined ? [kind.name] : []);
    for (const question of names) asked.add(`${own}/${question}`);
  }
  return asked.size * answers + grouped;
}

/** Whether a term asks the run's judge, and not one of its own. */
export function asksRunsJudge(term: MeasureTerm | TermSettings): boolean {
  const kind: TermKind = termKinds[term.name];
  return kind.needs.judge && kind.ownJudge?.(ownFields(term)) !== true;
}

/** The tokens of the longest reply that the terms ask the run's judge for, as far as settings say; 0 if they say none. */
export function longestReply(choice: Choice & Pick<RewardSettings, 'max_reply_tokens'>): number {
  const { viescore, ground_score } = choice.max_reply_tokens;
  const byQuestion: Readonly<Record<string, number>> = {
    viescore_sc: viescore,
    viescore_pq: viescore,
    pairwise: viescore,
    ground_score,
    align_quality: alignReplyTokens,
  };
  const asking = chosenTerms(choice).filter(({ kind, fields }) => kind.needs.judge && kind.ownJudge?.(fields) !== true);
  const lengths = asking.flatMap(({ kind, fields }) => [
    Number(fields['max_reply_tokens'] ?? 0),
    ...[kind.name, ...(kind.asks?.(fields) ?? [])].map((question) => byQuestion[question] ?? 0),
  ]);
  return Math.max(0, ...lengths);
}

/** How many images the terms show the run's judge at once, of edits that begin from at most so many pictures: none if none shows it any. */
export function shownToJudge(choice: Choice, sources = 1): number {
  const asking = termsThatAsk(choice).map((name): TermKind => termKinds[name]);
  if (asking.length > 0 && asking.every(({ reads }) => reads === 'words')) return imagesShown.words;
  const usual = asking.some(comparesAnswers) ? imagesShown.pair : imagesShown.edit;
  return asking.some(({ judgesSeveral }) => judgesSeveral) ? Math.max(usual, imagesOfEdit(sources)) : usual;
}

/**
 * Whether a term asks somebody about pictures who is shown one before an edit, however many it begins from. The rule judge (endpoint 'embedded') knows
 * edits of one scene.
 */
export function showsOne({ kind, fields }: ChosenTerm, { endpoint }: { readonly endpoint: unknown }): boolean {
  const { needs, reads, judgesSeveral = false } = kind;
  if (reads === 'words' || !(needs.judge || needs.server === true)) return false;
  return !judgesSeveral || (endpoint === 'embedded' && kind.ownJudge?.(fields) !== true);
}

/** What to do about rows of several pictures where a term `showsOne`. */
export const SHOWN_ALL =
  "Leave such rows out, or choose the reward 'align_quality' with a judge that is a model, which is shown all.";

/** Whether a term compares the answers of a group: it shows a judge two edits beside their source. */
export function comparesAnswers(kind: TermKind): boolean {
  return kind.questions !== undefined;
}

/** Whether any chosen term asks the run's judge. */
export function asksJudge(choice: Choice): boolean {
  return termsThatAsk(choice).length > 0;
}

/** Whether any chosen term, including recorded ones and measures, compares with the text that an instruction quotes, as far as known. */
export function readsQuotedText(choice: Choice): boolean {
  return chosenTerms(choice).some(({ kind, fields }) => kind.readsQuoted?.(fields));
}

/** For messages: the mode's name, or those of the terms with their weights. */
export function rewardName({ mode, terms }: Pick<Choice, 'mode' | 'terms'>): string {
  return terms.length === 0 ? String(mode) : terms.map((term) => `${term.weight} ${termName(term)}`).join(' + ');
}

const withoutDefault = new Map<TermName, readonly string[]>();

/** The required fields of a kind: a kind with any can be neither a mode nor in `also_compute`. */
export function fieldsWithoutDefault(name: TermName): readonly string[] {
  const known = withoutDefault.get(name);
  if (known !== undefined) return known;
  const kind: TermKind = termKinds[name];
  const parsed = z.strictObject(kind.fields).safeParse({});
  const fields = parsed.success ? [] : [...new Set(parsed.error.issues.map(({ path }) => String(path[0])))];
  withoutDefault.set(name, fields);
  return fields;
}

/** The fields that every term has. */
const sharedFields: ReadonlySet<string> = new Set(['name', 'weight']);

/** The fields of a term, as validated or as recorded, that are its kind's own. */
export function ownFields(
  term: MeasureTerm | TermSettings | Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries(term).filter(([key]) => !sharedFields.has(key)));
}

const made = new Map<TermName, ChosenTerm>();

/** A term with the defaults of its fields. Cached: a large matrix calls this for every cell. */
function byDefault(name: TermName): ChosenTerm {
  const known = made.get(name);
  if (known !== undefined) return known;
  const kind: TermKind = termKinds[name];
  const term = { kind, name, fields: z.strictObject(kind.fields).parse({}), weight: 1 };
  made.set(name, term);
  return term;
}
