/** `editrl judge exam`: tests a judge on answers of known quality before a run trains on its scores. */
import { join, resolve } from 'node:path';
import { meanDifference, showEstimate } from '../core/estimate.js';
import { writeFileAtomic } from '../core/files.js';
import { EditrlError, printable, UsageError } from '../core/errors.js';
import type { ExamRecord } from '../run/exams.js';
import { examCostRows, examMarkRows, examTestRows, judgementsText } from '../run/report/exam.js';
import type { ExamSet } from '../rewards/exam/cases.js';
import type { CaseEstimate } from '../rewards/exam/findings.js';
import { formatTable, printError, printJson, printLine, styled } from './shared/output.js';
import { htmlOption } from './report.js';
import { rewardOfConfig, rewardOfFlags } from './shared/reward_settings.js';
import { abortOnSignals, INTERRUPTED } from './shared/signals.js';
import {
  changeOptions,
  flag,
  jsonOption,
  numberOption,
  text,
  wholeNumber,
  type Action,
  type Arguments,
} from './shared/verb.js';

const CASES = 49;
const REPEATS = 2;

export const judgeExamVerb: Action = {
  positionals: '[config]',
  build: (yargs) =>
    yargs
      .positional('config', { type: 'string', describe: 'Jsonnet file whose reward to examine' })
      .options(changeOptions)
      .option('endpoint', {
        type: 'string',
        describe: 'Without a config: URL of the judge, or embedded for the rule judge',
      })
      .option('model', { type: 'string', describe: 'Without a config: judge model' })
      .option('terms', {
        type: 'string',
        default: 'viescore',
        describe: 'Without a config: terms with weights, such as a=0.6,b=0.4',
      })
      .option('pairs', {
        type: 'string',
        describe:
          'Your own cases, as JSON lines of {source, instruction, better, worse}, or {question, better, worse} for text',
      })
      .option('cases', numberOption(`Number of cases (default: ${CASES} built-in cases, or all pairs)`))
      .option('repeats', { ...numberOption('Number of judgements per answer'), default: REPEATS })
      .option('seed', { ...numberOption('Seed for drawing the cases'), default: 0 })
      .option('out', {
        type: 'string',
        describe: 'Folder for replies and marks (default: exams/ in the runs directory)',
      })
      .option('against', {
        type: 'string',
        describe: 'Compare with the exam in this folder, on the same cases',
      })
      .option('html', htmlOption)
      .option('json', jsonOption)
      .example('$0 judge exam --endpoint http://127.0.0.1:8000/v1 --model Qwen/Qwen2.5-VL-7B-Instruct', 'Any judge')
      .example('$0 judge exam configs/sft_s__rl_s.jsonnet --with configs/lib/tiny.libsonnet', 'The reward of a config')
      .example('$0 judge exam own.jsonnet --pairs pairs.jsonl --against exams/other', 'On your own images'),
  run: async (args) => {
    const repeats = wholeNumber(args, 'repeats', 2) ?? REPEATS;
    const count = wholeNumber(args, 'cases', 1);
    const seed = wholeNumber(args, 'seed', 0) ?? 0;
    const { settings, runs } = text(args, 'config') === '' ? flagsReward(args) : await rewardOfConfig(args);
    const [
      { examReads, runExam },
      { examFolder, readExam },
      { runResolver },
      { openPairs },
      { tinyExam },
      { wordsExam },
    ] = await Promise.all([
      import('../launch/reward/exam.js'),
      import('../run/exams.js'),
      import('../launch/models/wanted.js'),
      import('../rewards/exam/pairs.js'),
      import('../rewards/rule_judge/exam_cases.js'),
      import('../rewards/rule_judge/words_exam.js'),
    ]);
    const pairs = text(args, 'pairs');
    const builtIn = { image: tinyExam, words: wordsExam }[examReads(settings)];
    const whole = pairs === '' ? builtIn(count ?? CASES, seed) : await openPairs(pairs);
    const set = { ...whole, length: Math.min(whole.length, count ?? Infinity) };
    const other = text(args, 'against') === '' ? null : readExam(text(args, 'against'));
    const folder = text(args, 'out') === '' ? examFolder(runs, settings, set.name) : resolve(text(args, 'out'));
    const lost = new AbortController();
    const stopping = (): void => printError('stopping. Answers are kept. Repeat the command to continue.');
    const [stopSignal] = abortOnSignals(1, stopping, { end: () => undefined });
    let record: ExamRecord;
    try {
      record = await runExam({
        settings,
        set,
        repeats,
        folder,
        resolveRun: runResolver(runs),
        signal: AbortSignal.any([stopSignal, lost.signal]),
        onNote: printError,
        onWaiting: (found, waitedS) => printError(`waiting for the judge (${Math.round(waitedS)} s): ${found}`),
        judge: { notice: printError, lost: (error) => lost.abort(error), over: stopSignal },
        onCase: (done) => {
          if (process.stderr.isTTY) process.stderr.write(`\r${done}/${set.length} cases  `);
        },
      });
    } catch (error) {
      if (!stopSignal.aborted) throw lost.signal.aborted ? lost.signal.reason : error;
      if (error instanceof EditrlError) printError(error.toText());
      return INTERRUPTED;
    } finally {
      if (process.stderr.isTTY) printError('');
    }
    const compared = other === null ? null : compare(record, other);
    const page = args['html'] === undefined ? null : resolve(text(args, 'html') || join(folder, 'exam.html'));
    if (page !== null) await writeExamPage(record, set, folder, page);
    if (flag(args, 'json')) {
      printJson({ ...record, folder, html: page, ...(compared === null ? {} : { against: compared }) });
      return 0;
    }
    printLine(examText(record));
    if (compared !== null) printCompared(compared);
    printLine(page ?? folder);
    return 0;
  },
};

function flagsReward(args: Arguments): ReturnType<typeof rewardOfFlags> {
  if (text(args, 'endpoint') !== '') return rewardOfFlags(args);
  throw new UsageError('found neither a config nor --endpoint; allowed: one of them', {
    next: '`editrl judge exam --help` has an example of each. --endpoint embedded examines the rule judge.',
  });
}

interface Compared {
  readonly agreement: CaseEstimate | null;
  readonly fidelity: CaseEstimate | null;
}

/** The paired differences of two exams, this one minus the other. Raises UsageError if their cases differ. */
function compare(record: ExamRecord, other: ExamRecord): Compared {
  const others = new Map(other.cases.map((one) => [one.name, one]));
  if (other.set !== record.set || record.cases.some(({ name }) => !others.has(name))) {
    throw new UsageError(
      `--against: found an exam of ${other.cases.length} cases of '${other.set}'; allowed: one with the ${record.cases.length} cases of '${record.set}'`,
    );
  }
  const paired = (mark: 'agreement' | 'fidelity'): CaseEstimate | null =>
    meanDifference(
      record.cases.flatMap((one) => {
        const [own, theirs] = [one[mark], others.get(one.name)?.[mark] ?? null];
        return own === null || theirs === null ? [] : [own - theirs];
      }),
    );
  return { agreement: paired('agreement'), fidelity: paired('fidelity') };
}

/** The terminal version of an exam. */
function examText(record: ExamRecord): string {
  const tests = examTestRows(record).map(({ cells, verdict: found, isFault }) => [
    ...cells,
    isFault ? styled(found, 'red') : found,
  ]);
  const { marks, verdict, reward, repeats } = record;
  return [
    printable(
      `${reward.model}, reward '${reward.name}': ${marks.cases} cases of ${record.set}, ${repeats} judgements per answer`,
    ),
    '',
    ...verdict.sentences,
    '',
    formatTable(
      [{ title: 'mark' }, { title: 'value', align: 'right' }, { title: 'meaning', wraps: true }],
      examMarkRows(record),
    ),
    '',
    formatTable([{ title: 'test' }, { title: 'value', align: 'right' }, { title: 'allowed' }, { title: '' }], tests),
    '',
    formatTable(
      [{ title: 'cost' }, { title: 'value', align: 'right' }, { title: 'meaning', wraps: true }],
      examCostRows(record),
    ),
    '',
    judgementsText(record),
  ].join('\n');
}

/** Number of cases on the page. */
const SHOWN = 6;

async function writeExamPage(record: ExamRecord, set: ExamSet, folder: string, file: string): Promise<void> {
  const { examFile } = await import('../web/report/exam.js');
  const cases = record.cases.slice(0, SHOWN).map(async (one, at) => ({ exam: await set.at(at), record: one }));
  writeFileAtomic(file, await examFile(record, folder, await Promise.all(cases), examText(record)));
}

function printCompared({ agreement, fidelity }: Compared): void {
  if (agreement !== null) printLine(`difference in agreement: ${showEstimate(agreement)}`);
  if (fidelity === null) return;
  const { mean, stderr } = fidelity;
  const clear = stderr !== null && Math.abs(mean) > 2 * stderr;
  printLine(`difference in fidelity: ${showEstimate(fidelity)}`);
  printLine(
    clear
      ? `The ${mean > 0 ? 'examined' : 'other'} judge is better.`
      : 'No clear difference (within two standard errors).',
  );
}
