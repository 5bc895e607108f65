/** `editrl evaluate RUN`: evaluates a run's checkpoint, or the model of a config, without training. */
import { existsSync, rmSync, statSync } from 'node:fs';
import { CheckpointError, UsageError } from '../core/errors.js';
import type { Launcher } from '../launch/launcher.js';
import { noView, openView, type View } from '../launch/live/view.js';
import type { EvaluationChanges, EvaluationSubject } from '../launch/evaluation.js';
import { parseRunSpec, type CheckpointChoice } from '../run/chosen_checkpoint.js';
import { findRun } from '../run/find.js';
import { encodeLine } from '../run/journal.js';
import { evaluatedAt, evaluationTable, readEvaluation, type EvaluationReport } from '../run/report/evaluation.js';
import { readState } from '../run/state.js';
import type { BenchmarkChoice } from '../run/report/benchmark.js';
import { getPath } from '../core/schema/walk.js';
import { outputWidth, printError, printJson, printLine, printSentence, printWarnings } from './shared/output.js';
import { abortOnSignals, INTERRUPTED } from './shared/signals.js';
import {
  changesOf,
  expDirOption,
  flag,
  jsonOption,
  listOption,
  overlayOption,
  setOption,
  text,
  textOption,
  texts,
  trustOption,
  type Action,
  type Arguments,
} from './shared/verb.js';

export const evaluateVerb: Action = {
  positionals: '<run|config>',
  build: (yargs) =>
    yargs
      .positional('run', {
        type: 'string',
        describe:
          'RUN or RUN@CHECKPOINT (an iteration, best, or last, the default), or a config, to evaluate its initial model',
      })
      .option(
        'model',
        textOption('With a config: the model, a folder, hub:OWNER/NAME[@REVISION], or run:NAME[@CHECKPOINT]'),
      )
      .option('data', listOption('Held-out dataset instead of data.validation (repeatable)'))
      .option('measure', listOption('Also score with this term, instead of validation.measure (repeatable)'))
      .option(
        'benchmark',
        textOption(
          'Score with the published questions of a benchmark instead of the reward, on the folder in --data: a name, or its settings as JSON',
        ),
      )
      .option('against', textOption('Print the paired difference to this: RUN[@CHECKPOINT], or a model as in --model'))
      .option('with', overlayOption)
      .option('set', {
        ...setOption,
        describe: 'Set one key, such as validation.prompts=500 (repeatable)',
      })
      .option('json', jsonOption)
      .option('trust', trustOption)
      .option('exp-dir', expDirOption)
      .example('$0 evaluate sft_s__rl_s', 'The last checkpoint, on its own held-out data')
      .example('$0 evaluate sft_s__rl_s@best --against sft_s__rl_s@60', 'Compare two checkpoints prompt by prompt')
      .example('$0 evaluate sft_s__rl_s --data my/bench.jsonl --measure ground_score', 'Other data and another measure')
      .example('$0 evaluate editor --benchmark imgedit --data imgedit', 'The numbers of a published benchmark')
      .example('$0 evaluate configs/text_plain.jsonnet --model exported', 'A folder from editrl export'),
  run: async (args) => {
    const json = flag(args, 'json');
    const subjects = await subjectsOf(args);
    (await import('../launch/evaluation.js')).requireCommonNumber(subjects);
    for (const { problems } of subjects) printWarnings(problems.map((one) => `checkpoint skipped: ${one}`));
    const view = json ? noView : openView(process.stderr);
    const [stop] = abortOnSignals(1, () => printError('stopping (recorded judge answers are kept)'), view);
    const launching = await import('../launch/launcher.js');
    const launcher = new launching.Launcher({ view, command: process.argv.slice(2), stop, kill: stop });
    try {
      for (let [i, tries] = [0, 0]; i < subjects.length;) {
        const subject = subjects[i];
        try {
          if ((await evaluate(launcher, subject, view)) === 'interrupted') {
            if (!json) printSentence(`${subject.label}: stopped. Repeat the command to continue.`);
            return INTERRUPTED;
          }
          [i, tries] = [i + 1, 0];
        } catch (error) {
          if (!(error instanceof CheckpointError) || !isGone(subject) || (tries += 1) > MAX_TRIES) throw error;
          // The run continued and has a later checkpoint. If the user named this one, choosing again raises.
          subjects[i] = (await subjectsOf(args))[i];
        }
      }
    } finally {
      view.end();
      await launcher.close();
    }
    if (text(args, 'benchmark') === '') show(subjects, json);
    else await showBenchmark(subjects, texts(args, 'data')[0], json);
    return 0;
  },
};

/** The subjects: the evaluated one and the one to compare with. Raises UsageError for contradictory flags. */
async function subjectsOf(args: Arguments): Promise<EvaluationSubject[]> {
  const { evaluatedModel, evaluatedRun } = await import('../launch/evaluation.js');
  const [named, against, expDir] = ['run', 'against', 'exp-dir'].map((one) => text(args, one));
  const model = text(args, 'model') || null;
  const changes: EvaluationChanges = {
    data: texts(args, 'data'),
    measures: texts(args, 'measure'),
    ...(text(args, 'benchmark') === '' ? {} : { benchmark: text(args, 'benchmark') }),
    sets: texts(args, 'set'),
    trust: flag(args, 'trust'),
  };
  if (isConfig(named)) {
    const { overlays, sets } = changesOf({ with: args['with'], 'exp-dir': args['exp-dir'] });
    const place = { file: named, overlays, sets, expDir };
    const others = against === '' ? [] : [against];
    return Promise.all([model, ...others].map((one) => evaluatedModel(place, one, changes)));
  }
  if (model !== null || texts(args, 'with').length > 0) {
    throw new UsageError(`found --${model === null ? 'with' : 'model'} with the run ${named}; allowed: with a config`, {
      next: 'Runs are evaluated with their own settings. To choose a model, name a config and --model.',
    });
  }
  const own = parseRunSpec(named);
  const of = (name: string, at: CheckpointChoice): EvaluationSubject =>
    evaluatedRun(findRun(name, expDir), at, changes);
  const other = against === '' ? null : parseRunSpec(against);
  return [of(own.name, own.checkpoint), ...(other === null ? [] : [of(other.name, other.checkpoint)])];
}

/** Number of attempts to read the last checkpoint of a run that keeps replacing it. */
const MAX_TRIES = 20;

function isGone({ config }: EvaluationSubject): boolean {
  const { checkpoint } = config.evaluation;
  return checkpoint !== null && !existsSync(checkpoint);
}

function isConfig(named: string): boolean {
  return /\.(jsonnet|libsonnet|json)$/.test(named) || (existsSync(named) && statSync(named).isFile());
}

/** Evaluates one subject. Repeated evaluations reuse recorded judge answers. */
async function evaluate(launcher: Launcher, subject: EvaluationSubject, view: View): Promise<string> {
  const { label, paths } = subject;
  const { withPinnedCheckpoint } = await import('../launch/evaluation.js');
  if (readState(paths)?.state === 'finished') rmSync(paths.state);
  view.busy(`evaluating ${label}`);
  try {
    return await withPinnedCheckpoint(subject, (config) => launcher.evaluate(config));
  } finally {
    view.busy(null);
  }
}

/** Prints the results. */
function show([own, other]: readonly EvaluationSubject[], json: boolean): void {
  const base = other === undefined ? null : placeOf(other);
  const report = readEvaluation(placeOf(own), base);
  const against = base === null ? null : readEvaluation(base);
  if (base !== null && report.numbers.every(({ difference }) => difference === undefined)) {
    printWarnings([`${own.label} and ${other.label} share no prompts. Name one dataset for both with --data.`]);
  }
  if (json) {
    const document = { ...documentOf(own, report), against: against === null ? null : documentOf(other, against) };
    printJson(JSON.parse(encodeLine(document).line));
    return;
  }
  printLine(`${own.label}${other === undefined ? '' : `, against ${other.label}`}\n`);
  printLine(evaluationTable(report, against, outputWidth()));
  const recorded = recordedNote(own, report);
  printLine();
  if (recorded !== null) printSentence(recorded);
  printLine(`records  ${own.paths.dir}`);
  if (existsSync(own.paths.contactSheet)) printLine(`answers  ${own.paths.contactSheet}`);
}

/** Writes and prints the published numbers of a benchmark. */
async function showBenchmark(subjects: readonly EvaluationSubject[], folder: string, json: boolean): Promise<void> {
  const [{ benchmarkReport, benchmarkText }, { benchmarkLists }] = await Promise.all([
    import('../run/report/benchmark.js'),
    import('../launch/evaluation.js'),
  ]);
  const lists = benchmarkLists(folder);
  const reports = await Promise.all(
    subjects.map(async (subject) => {
      const [choice] = getPath(subject.config.settings, 'reward.terms') as readonly BenchmarkChoice[];
      return { evaluated: subject.label, ...(await benchmarkReport(placeOf(subject), choice, lists)) };
    }),
  );
  if (json) {
    printJson(JSON.parse(encodeLine({ evaluations: reports }).line));
    return;
  }
  for (const [i, report] of reports.entries()) {
    printLine(`${report.evaluated}\n`);
    printLine(benchmarkText(report, outputWidth()));
    printLine(`\nrecords    ${subjects[i].paths.benchmark}\n`);
  }
}

function placeOf({ paths, config }: EvaluationSubject): { paths: EvaluationSubject['paths']; iteration: number } {
  return { paths, iteration: config.evaluation.iteration };
}

function documentOf({ label, config, paths, recordedBy }: EvaluationSubject, report: EvaluationReport): object {
  return {
    evaluated: label,
    checkpoint: config.evaluation.checkpoint,
    ...report,
    recorded: recordedBy === null ? null : evaluatedAt(recordedBy, report.iteration),
    paths: { records: paths.dir, contact_sheet: existsSync(paths.contactSheet) ? paths.contactSheet : null },
  };
}

/** Compares with the run's own evaluation of that iteration. Null if there is none. */
function recordedNote({ recordedBy }: EvaluationSubject, { iteration, metrics }: EvaluationReport): string | null {
  const recorded = recordedBy === null ? null : evaluatedAt(recordedBy, iteration);
  const common = Object.keys(recorded ?? {}).filter((name) => name in metrics);
  if (recorded === null || common.length === 0) return null;
  const other = common.find((name) => !Object.is(recorded[name], metrics[name]));
  if (other === undefined) return `The run recorded the same numbers at iteration ${iteration}.`;
  return `The run recorded different numbers at iteration ${iteration}: ${other} was ${recorded[other]} and is now ${metrics[other]}. The judge's answers or the data have changed.`;
}
