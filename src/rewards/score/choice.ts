/** The terms that the reward section of a config chooses. Pure, and as light to import as the schema. */
import { z } from 'zod';
import { imagesOfEdit, imagesShown } from '../judge/judge.js';
import type { MeasureTerm, RewardChoice, RewardSettings, TermSettings } from './settings.js';
import type { TermKind } from '../terms/term.js';
import { termKinds, type TermName } from '../terms/table.js';
import { weightedNames } from './weighted.js';

/** A chosen term, not created yet. */
export interface ChosenTerm {
  readonly kind: TermKind;
  /** Its name among the terms, used for its parts and metrics. */
  readonly name: string;
  /** The kind's own fields with their defaults. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** 1 for a single deciding term. */
  readonly weight: number;
}

type Choice = Pick<RewardChoice, 'mode' | 'terms' | 'also_compute' | 'measure'>;
type Deciding = Pick<Choice, 'mode' | 'terms'>;

/** The terms that decide: the mode's term, or the weighted terms. Empty if the settings name neither. */
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

/** The terms that measure held-out answers. */
export function measuredTerms({ measure = [] }: Pick<Choice, 'measure'>): ChosenTerm[] {
  return measure.map((term) => ({
    kind: termKinds[term.name],
    name: termName(term),
    fields: ownFields(term),
    weight: 1,
  }));
}

/** The term's name among the others. */
export function termName(term: MeasureTerm | TermSettings): string {
  const kind: TermKind = termKinds[term.name];
  return kind.nameOf?.(ownFields(term)) ?? kind.name;
}

/** All terms: those that decide, those that are only recorded, and those that measure held-out answers. */
export function chosenTerms(choice: Choice): ChosenTerm[] {
  return [...decidingTerms(choice), ...recordedTerms(choice), ...measuredTerms(choice)];
}

/** The kinds of the terms that decide. */
export function decidingKinds({ mode, terms }: Pick<Choice, 'mode' | 'terms'>): TermKind[] {
  if (terms.length === 0) return mode === null ? [] : [termKinds[mode]];
  return terms.map(({ name }) => termKinds[name]);
}

/** The chosen terms that ask the run's judge, including recorded terms and measures. */
export function termsThatAsk({ mode, terms, also_compute, measure = [] }: Choice): TermName[] {
  const bare = [...(mode === null || terms.length > 0 ? [] : [mode]), ...also_compute];
  return [
    ...[...terms, ...measure].filter(asksRunsJudge).map(({ name }) => name),
    ...bare.filter((name) => termKinds[name].needs.judge),
  ];
}

/**
 * The highest number of questions to judges about a group of `answers` answers (1: a single answer). Counts the run's judge and the terms'
 * own judges.
 */
export function questionsOf(terms: readonly ChosenTerm[], answers: number): number {
  const questionNames = new Set<string>();
  let grouped = 0;
  for (const { kind, name, fields } of terms) {
    if (!kind.needs.judge) continue;
    if (kind.questions !== undefined) grouped += kind.questions(fields, answers);
    const own = kind.ownJudge?.(fields) === true ? name : '';
    const names = kind.asks?.(fields) ?? (kind.questions === undefined ? [kind.name] : []);
    for (const question of names) questionNames.add(`${own}/${question}`);
  }
  return questionNames.size * answers + grouped;
}

/** Whether a term asks the run's judge, and not a judge of its own. */
export function asksRunsJudge(term: MeasureTerm | TermSettings): boolean {
  const kind: TermKind = termKinds[term.name];
  return kind.needs.judge && kind.ownJudge?.(ownFields(term)) !== true;
}

/** The longest reply that the terms ask the run's judge for, in tokens. 0 if the settings give no limit. */
export function longestReply(choice: Choice & Pick<RewardSettings, 'max_reply_tokens'>): number {
  const { viescore, ground_score } = choice.max_reply_tokens;
  const byQuestion: Readonly<Record<string, number>> = {
    viescore_sc: viescore,
    viescore_pq: viescore,
    pairwise: viescore,
    ground_score,
  };
  const asking = chosenTerms(choice).filter(({ kind, fields }) => kind.needs.judge && kind.ownJudge?.(fields) !== true);
  const lengths = asking.flatMap(({ kind, fields }) => [
    Number(fields['max_reply_tokens'] ?? kind.replyTokens ?? 0),
    ...[kind.name, ...(kind.asks?.(fields) ?? [])].map((question) => byQuestion[question] ?? 0),
  ]);
  return Math.max(0, ...lengths);
}

/**
 * The highest number of images that the terms show the run's judge at once, for prompts of at most `sources` images: by default one for
 * edits, and none for text answers. 0 if no term shows the judge an image.
 */
export function shownToJudge(choice: Choice, sources?: number): number {
  const asking = termsThatAsk(choice).map((name): TermKind => termKinds[name]);
  const inWords = asking.some(({ reads }) => reads === 'words') ? (sources ?? imagesShown.words) : 0;
  const ofEdits = asking.filter(({ reads }) => reads !== 'words');
  if (asking.length > 0 && ofEdits.length === 0) return inWords;
  return Math.max(inWords, shownOfEdits(ofEdits, Math.max(1, sources ?? 1)));
}

function shownOfEdits(asking: readonly TermKind[], sources: number): number {
  const usual = asking.some(comparesAnswers) ? imagesShown.pair : imagesShown.edit;
  return asking.some(({ judgesSeveral }) => judgesSeveral) ? Math.max(usual, imagesOfEdit(sources)) : usual;
}

/**
 * Whether a term asks a judge or a server that sees one image before an edit, even if the edit begins from several. The rule judge
 * (endpoint 'embedded') supports edits of one scene.
 */
export function showsOne({ kind, fields }: ChosenTerm, { endpoint }: { readonly endpoint: unknown }): boolean {
  const { needs, reads, judgesSeveral = false } = kind;
  if (reads === 'words' || !(needs.judge || needs.server === true)) return false;
  return !judgesSeveral || (endpoint === 'embedded' && kind.ownJudge?.(fields) !== true);
}

/** Advice for rows of several images if a term `showsOne`. */
export const SHOWN_ALL =
  "Leave such rows out, or choose the reward 'align_quality' with a judge that is a model: it sees all images.";

/** Whether a term compares the answers of a group, so that the judge sees two edits and their source. */
export function comparesAnswers(kind: TermKind): boolean {
  return kind.questions !== undefined;
}

/** Whether any chosen term asks the run's judge. */
export function asksJudge(choice: Choice): boolean {
  return termsThatAsk(choice).length > 0;
}

/** Whether any chosen term, including recorded terms and measures, compares with the text that an instruction quotes, as far as is known. */
export function readsQuotedText(choice: Choice): boolean {
  return chosenTerms(choice).some(({ kind, fields }) => kind.readsQuoted?.(fields));
}

/** For messages: the mode's name, or the terms' names with their weights. */
export function rewardName({ mode, terms }: Pick<Choice, 'mode' | 'terms'>): string {
  return terms.length === 0
    ? String(mode)
    : weightedNames(terms.map((term) => ({ name: termName(term), weight: term.weight })));
}

const withoutDefault = new Map<TermName, readonly string[]>();

/** The required fields of a kind. A kind with required fields can be neither a mode nor in `also_compute`. */
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

/** The own fields of a term's kind, from a validated or recorded term. */
export function ownFields(
  term: MeasureTerm | TermSettings | Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries(term).filter(([key]) => !sharedFields.has(key)));
}

const made = new Map<TermName, ChosenTerm>();

/** A term with the defaults of its fields. Cached, because a large matrix calls this for every cell. */
function byDefault(name: TermName): ChosenTerm {
  const known = made.get(name);
  if (known !== undefined) return known;
  const kind: TermKind = termKinds[name];
  const term = { kind, name, fields: z.strictObject(kind.fields).parse({}), weight: 1 };
  made.set(name, term);
  return term;
}
