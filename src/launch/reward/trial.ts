/**
 * Tries rewards on the first rows of a run's datasets before training. Each term scores answers that need no model.
 * Terms that use a judge or a server are tried only on request.
 */
import type { LoadedConfig } from '../../config/load.js';
import { ConfigError, DataError, EndpointError, type EditrlError } from '../../core/errors.js';
import { openRecipeOf } from '../../recipes/open.js';
import { isTrainable } from '../../config/recipes.js';
import { rewardOf } from '../../recipes/settings.js';
import type { JudgeAddress } from '../../rewards/judge/endpoints.js';
import type { RewardSettings } from '../../rewards/schema/reward.js';
import { decidingTerms, recordedTerms, SHOWN_ALL, showsOne, type ChosenTerm } from '../../rewards/score/choice.js';
import type { JudgeItem, Outcome } from '../../rewards/score/types.js';
import type { ModuleSettings } from '../../rewards/terms/module/exports.js';
import { openModuleApart } from '../../rewards/terms/module/term.js';
import { missingInput, type Term } from '../../rewards/terms/term.js';
import type { RunSettings, TrainedSettings } from '../../config/schema/run.js';
import { isObject } from '../../core/schema/walk.js';
import type { SampleAnswer, SampledSet, SampleRow } from '../../train/scoring/sample_rows.js';
import { Judges, noStore, termServices } from '../../train/scoring/judges.js';
import { cachedModel } from '../../models/hub/cache.js';
import type { HubReference } from '../../config/schema/model.js';
import { failureOf, computeOnce, type Obstacle } from '../preflight/obstacle.js';
import { runResolver, unfinishedRun } from '../models/wanted.js';

/** Rows of each dataset to try before a run. */
const ROWS = 3;

/** One answer with one term's outcome. */
export interface TrialRow {
  readonly row: SampleRow;
  readonly answer: SampleAnswer;
  /** Null if the row lacks the reference that the term compares with. */
  readonly outcome: Outcome | null;
  /** The problem with the outcome. Null if there is none. */
  readonly problem: string | null;
}

/** The result of trying a term. */
export interface TermTrial {
  readonly name: string;
  /** Null for a term that is recorded without affecting the reward. */
  readonly weight: number | null;
  readonly tried: readonly TrialRow[];
  /** Why the term was not tried. Null if it was. */
  readonly untried: string | null;
}

/**
 * Returns the address of a reward's judge, or null to skip the terms that use a judge. Without this function, all terms
 * that use a judge or a server are skipped.
 */
export type AskJudge = (reward: RewardSettings) => Promise<JudgeAddress | null>;

/**
 * The rows on which to try a run's reward: held-out rows only for supervised training. Raises DataError for rows that
 * cannot be read.
 */
export async function rowsToScore(settings: TrainedSettings, count: number): Promise<readonly SampledSet[]> {
  const sets = await openRecipeOf(settings).sampleRows(settings, count);
  const supervised = 'algorithm' in settings && settings.algorithm.type === 'sft';
  return supervised ? sets.filter(({ heldOut }) => heldOut) : sets;
}

/** Whether a term sends requests to a judge or a server. */
function asks({ kind: { needs } }: ChosenTerm): boolean {
  return needs.judge || needs.server === true;
}

/** The terms of a reward. Terms that are only recorded come last. */
export function termsOf(reward: RewardSettings): ChosenTerm[] {
  return [...decidingTerms(reward), ...recordedTerms(reward)];
}

/**
 * Tries one term of a run's reward. Raises the errors of creating it. Raises DataError if a term that decides cannot
 * compare with a row, or if a row has several images and the judge or server accepts one.
 */
export async function tryTerm(
  term: ChosenTerm,
  settings: TrainedSettings,
  reward: RewardSettings,
  rows: readonly SampleRow[],
  askJudge?: AskJudge,
): Promise<TermTrial> {
  const decides = decidingTerms(reward).some(({ name }) => name === term.name);
  const named = { name: term.name, weight: decides ? term.weight : null };
  const untried = whyUntried(term, settings.base_exp_dir, askJudge !== undefined);
  if (untried !== null) return { ...named, tried: [], untried };
  const judges = new Judges();
  requireOne(term, reward, rows);
  const opened = await openTerm(term, settings, reward, judges, rows);
  try {
    const given = rows.map(({ item: { source, beside = [] } }) => (source === null ? 0 : 1) + beside.length);
    const connected = await connect(opened, { judges, reward, sources: Math.max(0, ...given) }, askJudge);
    const scored = connected ? await Promise.all(rows.map((row) => tryRow(term, opened, row, decides))) : [];
    return { ...named, tried: scored.flat(), untried: connected ? null : 'its judge was not asked' };
  } finally {
    await opened.close();
    await judges.close();
  }
}

function whyUntried(term: ChosenTerm, baseExpDir: string, asking: boolean): string | null {
  if (asks(term) && !asking) return 'it asks a judge or a server (--deep)';
  const model = term.fields['model'];
  if (isObject(model) && 'hub' in model && cachedModel(model as unknown as HubReference, 'model') === null) {
    return "it names a model of the Hub, which is not in the Hub's cache yet";
  }
  const run = unfinishedRun(term.fields, baseExpDir);
  return run === null ? null : `the run ${run} that it takes its model from is not finished`;
}

/** Raises DataError for a row with several images if the term's judge or server accepts one. */
function requireOne(term: ChosenTerm, reward: RewardSettings, rows: readonly SampleRow[]): void {
  const several = rows.find(({ item }) => item.beside !== undefined);
  if (several === undefined || !showsOne(term, reward)) return;
  throw new DataError(`the row has several source images; reward '${term.name}' reads one`, {
    where: several.place,
    next: SHOWN_ALL,
  });
}

function openTerm(
  { kind, fields }: ChosenTerm,
  { base_exp_dir }: RunSettings,
  reward: RewardSettings,
  judges: Judges,
  rows: readonly SampleRow[],
): Promise<Term> {
  if (kind.name === 'module') {
    // User code runs in a separate process.
    return openModuleApart(
      fields as unknown as ModuleSettings,
      rows.flatMap((row) => row.answers.map((answer) => itemOf(row, answer))),
    );
  }
  return kind.create(
    'wait_s' in fields ? { ...fields, wait_s: 0 } : fields,
    termServices(reward, judges, runResolver(base_exp_dir)),
  );
}

/** Prepares the judges of a term. Returns false if it must not send requests. */
async function connect(
  term: Term,
  { judges, reward, sources }: { readonly judges: Judges; readonly reward: RewardSettings; readonly sources: number },
  askJudge?: AskJudge,
): Promise<boolean> {
  await term.untilReady?.({ maxWaitS: 0, sources });
  if (judges.models.length === 0) return true;
  const address = (await askJudge?.(reward)) ?? null;
  if (address === null) return false;
  // A run repeats failed requests. One attempt is enough for this check.
  await judges.open({ ...reward, max_attempts: 1 }, address, { maxWaitS: 0, sources, store: noStore });
  return true;
}

function itemOf({ item, place }: SampleRow, { what, ...given }: SampleAnswer): JudgeItem {
  return { ...item, ...given, key: `${place}, ${what}`, finished: true };
}

function tryRow(term: ChosenTerm, opened: Term, row: SampleRow, decides: boolean): Promise<TrialRow[]> {
  return Promise.all(
    row.answers.map(async (answer): Promise<TrialRow> => {
      const missing = missingInput(term.kind.needs, { ...row.item, key: '', edited: null, finished: true });
      if (missing !== null && decides) {
        throw new DataError(`reward '${term.name}' compares with ${missing}, but this prompt has none`, {
          where: row.place,
          next: 'Train on data that has it, or choose a reward that does without: editrl config schema says what each term needs.',
        });
      }
      if (missing !== null) return { row, answer, outcome: null, problem: null };
      const item = itemOf(row, answer);
      try {
        const outcome = await opened.score(item);
        return { row, answer, outcome, problem: problemOf(term, outcome, item.key) };
      } catch (error) {
        if (decides || !(error instanceof DataError)) throw error;
        return { row, answer, outcome: null, problem: null };
      }
    }),
  );
}

/** The problem with an outcome. `unscored` from a judge, a server or a module is not a problem. */
function problemOf({ kind, name }: ChosenTerm, outcome: Outcome, key: string): string | null {
  if (outcome.kind === 'zero_by_rule') return null;
  if (outcome.kind === 'unscored') {
    const { reason, detail } = outcome;
    const isOurs = !kind.needs.judge && kind.needs.server !== true && kind.name !== 'module';
    return reason === 'own_code' || reason === 'timeout' || isOurs ? detail : null;
  }
  const { value, normalised } = outcome;
  if (Number.isFinite(value) && value >= 0 && normalised >= 0 && normalised <= 1) return null;
  return `${key}: ${name} gave value ${value} and normalised ${normalised}; allowed: a value from 0, and normalised from 0 to 1`;
}

/** Tries the rewards of several runs. Rewards that runs share are tried once. */
export class RewardTrials {
  readonly #known = new Map<string, Promise<EditrlError[]>>();

  constructor(private readonly askJudge?: AskJudge) {}

  /** The problems with the rewards of runs, or with the rows that they are tried on. */
  async of(runs: readonly LoadedConfig[]): Promise<Obstacle[]> {
    const found: Obstacle[] = [];
    for (const { settings } of runs) {
      const { run_name, launch } = settings;
      const reward = rewardOf(settings);
      if (reward === null || !isTrainable(settings) || launch.command !== null) continue;
      const errors = await computeOnce(this.#known, keyOf(settings, reward), () => this.#try(settings, reward));
      found.push(...errors.map((error) => ({ run: run_name, error })));
    }
    return found;
  }

  async #try(settings: TrainedSettings, reward: RewardSettings): Promise<EditrlError[]> {
    const asking = this.askJudge !== undefined;
    const terms = termsOf(reward).filter((term) => whyUntried(term, settings.base_exp_dir, asking) === null);
    if (terms.length === 0) return [];
    let rows: readonly SampleRow[] = [];
    const unreadable = await failureOf(async () => {
      rows = (await rowsToScore(settings, ROWS)).flatMap((set) => set.rows);
    });
    if (unreadable !== null) return [unreadable];
    if (rows.length === 0) return [];
    const found: EditrlError[] = [];
    for (const term of terms) {
      const error = await failureOf(async () => {
        found.push(...wrongScores(await tryTerm(term, settings, reward, rows, this.askJudge)));
      });
      if (error !== null) found.push(error);
    }
    return found;
  }
}

/** Identifies everything that decides the result of trying a reward. */
function keyOf(settings: TrainedSettings, reward: RewardSettings): string {
  const { task, data, base_exp_dir } = settings;
  const {
    prompt = null,
    environment = null,
    algorithm = null,
  } = settings as Partial<Record<'prompt' | 'environment' | 'algorithm', unknown>>;
  const terms = termsOf(reward).map((term) => [term.name, term.kind.name, term.fields]);
  const supervised = isObject(algorithm) && algorithm['type'] === 'sft';
  return JSON.stringify([task, data, base_exp_dir, prompt, environment, supervised, terms, reward.endpoint]);
}

/**
 * An error if a judge or server scored none of the answers. Some answers, such as empty ones, score 0 without a
 * request.
 */
function withoutScores(name: string, tried: readonly TrialRow[]): EditrlError[] {
  const outcomes = tried.flatMap(({ outcome }) => (outcome === null ? [] : [outcome]));
  const unscored = outcomes.flatMap((outcome) => (outcome.kind === 'unscored' ? [outcome] : []));
  const [first] = unscored;
  if (first === undefined || outcomes.some((outcome) => outcome.kind === 'scored' && outcome.value > 0)) {
    return [];
  }
  return [
    new EndpointError(
      `${unscored.length} of ${outcomes.length} answers tried got no score (${first.reason}), and no other more than 0: ${first.detail}`,
      {
        where: `reward term ${name}`,
        next: 'Check the server that was asked; `editrl score CONFIG --deep` shows its answer to each row.',
      },
    ),
  ];
}

/** One error for a term, about its first problem. */
function wrongScores({ name, tried }: TermTrial): EditrlError[] {
  const problems = tried.flatMap(({ problem }) => problem ?? []);
  if (problems.length === 0) return withoutScores(name, tried);
  const others = problems.length === 1 ? '' : ` (the first of ${problems.length} of ${tried.length} answers tried)`;
  return [
    new ConfigError(`${problems[0]}${others}`, {
      where: `reward term ${name}`,
      next: 'Correct it before you train. `editrl score CONFIG` shows the score of each row.',
    }),
  ];
}
