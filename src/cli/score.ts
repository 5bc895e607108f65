/** `editrl score CONFIG`: scores rows of a config's datasets with its reward terms, using answers that need no model. */
import { clip } from '../core/terminal.js';
import { EditrlError, printable, UsageError } from '../core/errors.js';
import type { AskJudge, TrialRow, TermTrial } from '../launch/reward/trial.js';
import { isTrainable } from '../config/recipes.js';
import { rewardOf } from '../recipes/settings.js';
import type { Outcome } from '../rewards/score/types.js';
import type { SampledSet, SampleRow } from '../train/scoring/sample_rows.js';
import { formatTable, printError, printJson, printLine, printSentence } from './shared/output.js';
import {
  configOf,
  configOptions,
  flag,
  jsonOption,
  numberOption,
  switchOption,
  text,
  wholeNumber,
  type Action,
} from './shared/verb.js';

export const scoreVerb: Action = {
  positionals: '<config>',
  build: (yargs) =>
    configOptions(yargs)
      .option('rows', { ...numberOption('Rows of the training datasets to score'), default: 20 })
      .option('deep', switchOption('Also use judges and reward servers. Starts an embedded judge'))
      .option('json', jsonOption)
      .example('$0 score configs/text_plain.jsonnet --rows 20', 'Prompt, answer, score and parts of each term')
      .example('$0 score own.jsonnet --deep', 'Also with its judge'),
  run: async (args) => {
    const count = wholeNumber(args, 'rows', 1) ?? 1;
    const file = text(args, 'config');
    const { settings } = await configOf(args);
    const reward = rewardOf(settings);
    if (reward === null || !isTrainable(settings)) {
      throw new UsageError(`${file}: a run of task '${settings.task}' has no reward`);
    }
    const [{ rowsToScore, termsOf, tryTerm }, { EmbeddedJudges }] = await Promise.all([
      import('../launch/reward/trial.js'),
      import('../launch/servers/gateway.js'),
    ]);
    const rows = chosenRows(await rowsToScore(settings, count), count);
    const judges = new EmbeddedJudges({ say: printError });
    const askJudge: AskJudge | undefined = flag(args, 'deep')
      ? async (section) => (section.endpoint === '' ? null : judges.addressOf(section))
      : undefined;
    const shown: Shown[] = [];
    try {
      for (const term of termsOf(reward)) {
        try {
          shown.push(await tryTerm(term, settings, reward, rows, askJudge));
        } catch (error) {
          if (!(error instanceof EditrlError)) throw error;
          shown.push({ name: term.name, weight: null, tried: [], untried: null, error });
        }
      }
    } finally {
      await judges.close();
    }
    if (flag(args, 'json')) printJson(document(settings.run_name, rows, shown));
    else if (rows.length === 0) printSentence(NO_ROWS);
    else for (const term of shown) printTerm(term);
    return Math.max(0, ...shown.map(exitCodeOf));
  },
};

const NO_ROWS =
  'No rows to score: data.train is empty, or its samples contain only image codes, which need a model to decode.';

/** A term, or the error that prevents its use. */
type Shown = TermTrial & { readonly error?: EditrlError };

function exitCodeOf({ error, tried }: Shown): number {
  return error?.exitCode ?? (tried.some(({ problem }) => problem !== null) ? 1 : 0);
}

/** Rows of the training datasets, the same number from each. Without training datasets, rows of the held-out ones. */
function chosenRows(sets: readonly SampledSet[], count: number): SampleRow[] {
  const training = sets.filter(({ heldOut }) => !heldOut);
  const from = training.length > 0 ? training : sets;
  return from.flatMap(({ rows }) => rows.slice(0, Math.ceil(count / from.length))).slice(0, count);
}

function printTerm({ name, weight, tried, untried, error }: Shown): void {
  const decides = weight === null ? 'recorded only' : `weight ${weight}`;
  printLine(printable(`${name} (${error === undefined ? decides : 'not created'})`));
  if (error !== undefined) printError(error.toText());
  else if (untried !== null) printSentence(printable(`  not scored: ${untried}`));
  else {
    const columns = [
      { title: 'row', align: 'right' as const },
      { title: 'prompt', wraps: true },
      { title: 'answer', wraps: true },
      { title: 'score', align: 'right' as const },
      { title: 'parts', wraps: true },
    ];
    printLine(formatTable(columns, cellsOf(tried)));
    const wrong = tried.flatMap(({ problem }) => problem ?? []);
    for (const one of wrong.slice(0, MAX_WRONG)) printError(printable(`wrong: ${one}`));
    if (wrong.length > MAX_WRONG) printError(`and ${wrong.length - MAX_WRONG} more`);
  }
  printLine();
}

const MAX_WRONG = 3;
/** Maximum characters of a text in a table. */
const MAX_SHOWN = 120;

/** The cells of the table. Only the first answer of a row repeats its prompt. */
function cellsOf(tried: readonly TrialRow[]): string[][] {
  let number = 0;
  return tried.map(({ row, answer, outcome, problem }, at) => {
    const { what, answer: words } = answer;
    const content = words === undefined || words.trim() === '' ? `[${what}]` : words;
    const isFirst = tried[at - 1]?.row !== row;
    if (isFirst) number += 1;
    return [
      ...(isFirst ? [String(number), shortened(row.item.instruction)] : ['', '']),
      shortened(content),
      problem === null ? scoreText(outcome) : 'wrong',
      partsText(outcome),
    ];
  });
}

function shortened(text: string): string {
  return clip(printable(text.replace(/\s+/g, ' ')), MAX_SHOWN);
}

function scoreText(outcome: Outcome | null): string {
  switch (outcome?.kind) {
    case 'scored':
      return outcome.normalised.toFixed(3);
    case 'zero_by_rule':
      return `0 ${outcome.reason}`;
    case 'unscored':
      return outcome.reason;
    case undefined:
      return '–';
  }
}

/** Parts without the prefix of their term's name. */
function partsText(outcome: Outcome | null): string {
  const parts = Object.entries(outcome?.parts ?? {});
  return printable(
    parts.map(([name, value]) => `${name.slice(name.indexOf('/') + 1)} ${Number(value.toPrecision(4))}`).join(', '),
  );
}

/** The document of `--json`. It contains no images. `answer` names the scored one. */
function document(run: string, rows: readonly SampleRow[], shown: readonly Shown[]): object {
  return {
    run_name: run,
    rows: rows.length,
    terms: shown.map(({ name, weight, tried, untried, error }) => ({
      name,
      weight,
      not_scored: error?.toText() ?? untried,
      scores: tried.map(({ row, answer, outcome, problem }) => ({
        row: row.place,
        prompt: row.item.instruction,
        answer: answer.what,
        words: answer.answer ?? null,
        outcome,
        problem,
      })),
    })),
  };
}
