/**
 * Does the exam of a judge say what a run learns from it? Trains the tiny run sft_s__rl_s against rule judges of three biases at several strengths, and
 * sets the gain of its held-out VIEScore by the sound judge against each judge's exam.
 *
 *   npm run build && node dist/experiments/runners/judge_exam_runs.js --seeds 1,2,3
 *
 * The runs form a sweep. Finished runs are reused, so the command may be stopped and started again. `--chart FILE` draws gains against signals.
 */
import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { writeFileAtomic } from '../../src/core/files.js';
import { meanDifference, showEstimate, type Estimate } from '../../src/core/estimate.js';
import { average } from '../../src/core/statistics.js';
import { FONT, INK, MUTED, svgToPng } from '../../src/run/report/svg.js';
import type { ExamMarks } from '../../src/rewards/exam/findings.js';
import '../../src/recipes/settings.js';
import { readExam } from '../../src/run/exams.js';
import { RunPaths } from '../../src/run/paths.js';
import { editrl, rescoreSoundly, soundGain, startJudge, sweep, type Judge } from './judged_runs.js';

/** Strengths of each bias; the sound judge is none of them. */
const STRENGTHS = {
  noise: [0.1, 0.2, 0.4, 0.7, 1],
  copies: [0.2, 0.4, 0.6, 0.8, 1],
  unreadable: [0.05, 0.15, 0.3, 0.45, 0.6],
} as const;
/** The name by which biased judges are asked, so that their answers are never taken for the sound judge's. */
const MODEL = 'biased-judge';

const { values: flags } = parseArgs({
  options: {
    seeds: { type: 'string', default: '1,2,3' },
    name: { type: 'string', default: 'judge_exam' },
    'max-parallel': { type: 'string', default: '1' },
    chart: { type: 'string' },
  },
});

const base = process.env['APP__BASE_EXP_DIR'] ?? 'runs';
/** The folder in which the tiny overlay puts runs. */
const BASE_EXP_DIR = base === 'runs' ? join('runs', 'tiny') : base;
const experimentFile = join(BASE_EXP_DIR, `${flags.name}.jsonnet`);
const soundFile = join(BASE_EXP_DIR, `${flags.name}_sound.jsonnet`);
const seeds = flags.seeds.split(',').map((seed) => seed.trim());

interface Arm {
  /** The cell's name. */
  readonly name: string;
  readonly bias: string;
}

const arms: readonly Arm[] = [
  { name: 'sound', bias: 'noise=0' },
  ...Object.entries(STRENGTHS).flatMap(([bias, strengths]) =>
    strengths.map((strength) => ({
      name: `${bias}${String(strength).replace('.', '_')}`,
      bias: `${bias}=${strength}`,
    })),
  ),
];

const examOf = ({ name }: Arm): string => join(BASE_EXP_DIR, 'exams', `${flags.name}-${name}`);

async function main(): Promise<void> {
  const judges = new Map<Arm, Judge>();
  try {
    for (const arm of arms) judges.set(arm, await startJudge(['--bias', arm.bias, '--model', MODEL]));
    mkdirSync(BASE_EXP_DIR, { recursive: true });
    for (const [arm, { url }] of judges) {
      await editrl(['judge', 'exam', '--endpoint', url, '--model', MODEL, '--cases', '98', '--out', examOf(arm)]);
    }
    writeFileAtomic(experimentFile, experiment(new Map([...judges].map(([{ name }, { url }]) => [name, url]))));
    writeFileAtomic(soundFile, `(import ${JSON.stringify(resolve('configs/sft_s__rl_s.jsonnet'))})\n`);
    await sweep(experimentFile, ['--max-parallel', flags['max-parallel']]);
  } finally {
    for (const { process: child } of judges.values()) child.stdin?.end();
  }
  for (const arm of arms) for (const seed of seeds) await rescoreSoundly(pathsOf(arm, seed), soundFile);
  const rows = arms.map(rowOf);
  console.log(table(rows));
  if (flags.chart !== undefined) writeFileAtomic(flags.chart, await svgToPng(chart(rows), 2));
}

/** The matrix of the judges and the seeds. A judge's address does not decide the result, so it may change when a run is resumed. */
function experiment(urls: ReadonlyMap<string, string>): string {
  const judge = ([name, url]: readonly [string, string]): string =>
    `${name}: { reward+: { endpoint: '${url}', model: '${MODEL}', max_unscored_fraction: 1 } }`;
  return `{
  name: '${flags.name}',
  base: import ${JSON.stringify(resolve('configs/sft_s__rl_s.jsonnet'))},
  with: [${JSON.stringify(resolve('configs/lib/tiny.libsonnet'))}],
  axes: {
    judge: { ${[...urls].map(judge).join(', ')} },
    seed: { ${seeds.map((seed) => `'${seed}': { seed: ${seed} }`).join(', ')} },
  },
  // All judges' runs of a seed begin with the same start.
  share: ['seed'],
  baseline: { judge: 'sound' },
}
`;
}

const pathsOf = ({ name }: Arm, seed: string): RunPaths =>
  new RunPaths(BASE_EXP_DIR, `${flags.name}__judge-${name}__seed-${seed}`);

interface ArmRow {
  readonly arm: Arm;
  readonly marks: ExamMarks;
  readonly faults: readonly string[];
  readonly teaches: string;
  readonly after: number;
  /** Null where no run has ended. */
  readonly gain: Estimate | null;
}

function rowOf(arm: Arm): ArmRow {
  const found = seeds.flatMap((seed) => soundGain(pathsOf(arm, seed)) ?? []);
  const { marks, verdict } = readExam(examOf(arm));
  return {
    arm,
    marks,
    teaches: verdict.teaches,
    faults: marks.findings.filter(({ accused }) => accused).map(({ name }) => name),
    after: average(found.map(({ after }) => after)),
    gain: meanDifference(found.map(({ before, after }) => after - before)),
  };
}

const nameOf = ({ name, bias }: Arm): string => (name === 'sound' ? name : bias);

/** One line for each judge: its exam, and what runs gained. */
function table(rows: readonly ArmRow[]): string {
  const lines = rows.map(({ arm, marks, faults, teaches, after, gain }) => {
    const { understood, fidelity, signal } = marks;
    const shown = [understood, fidelity, signal].map((mark) => showEstimate(mark));
    const cells = [
      nameOf(arm),
      ...shown,
      teaches,
      after.toFixed(3),
      gain === null ? '' : showEstimate(gain),
      faults.join(', '),
    ];
    return `| ${cells.join(' | ')} |`;
  });
  const head = ['judge', 'understood', 'fidelity', 'signal', 'teaches', 'VIEScore, after', 'gain', 'faults found'];
  return [`| ${head.join(' | ')} |`, `| ${head.map(() => '---').join(' | ')} |`, ...lines].join('\n');
}

const COLOURS: Readonly<Record<string, string>> = {
  noise: '#1f6feb',
  copies: '#c4432b',
  unreadable: '#2f8f4e',
  sound: INK,
};
const SIZE = { width: 640, height: 400, left: 64, right: 24, top: 44, bottom: 52 };

/** Gains against signals as an SVG document. */
function chart(rows: readonly ArmRow[]): string {
  const { width, height, left, right, top, bottom } = SIZE;
  const gains = rows.flatMap(({ gain }) => gain?.mean ?? []);
  const [low, high] = [Math.floor(Math.min(0, ...gains)), Math.ceil(Math.max(0, ...gains))];
  const x = (signal: number): number => left + signal * (width - left - right);
  const y = (gain: number): number => top + ((high - gain) / (high - low)) * (height - top - bottom);
  const text = (at: readonly [number, number], words: string, fill = MUTED, anchor = 'middle'): string =>
    `<text x="${at[0]}" y="${at[1]}" font-family="${FONT}" font-size="13" fill="${fill}" text-anchor="${anchor}">${words}</text>`;
  const line = (x1: number, y1: number, x2: number, y2: number, stroke: string): string =>
    `<path d="M${x1} ${y1}L${x2} ${y2}" stroke="${stroke}"/>`;
  const body: string[] = [
    text([left, 24], 'Gain of held-out VIEScore in 80 iterations, by the signal of the judge', INK, 'start'),
  ];
  for (let gain = low; gain <= high; gain++) {
    body.push(line(left, y(gain), width - right, y(gain), gain === 0 ? MUTED : '#dfe3e8'));
    body.push(text([left - 10, y(gain) + 4], String(gain), MUTED, 'end'));
  }
  for (const signal of [0, 0.25, 0.5, 0.75, 1]) body.push(text([x(signal), height - bottom + 20], signal.toFixed(2)));
  body.push(text([(left + width - right) / 2, height - 10], 'fidelity times the root of the share understood'));
  for (const { arm, marks, gain } of rows) {
    if (gain === null) continue;
    const colour =
      COLOURS[arm.bias.split('=')[0] === 'noise' && arm.name === 'sound' ? 'sound' : arm.bias.split('=')[0]];
    const [cx, cy] = [x(marks.signal.mean), y(gain.mean)];
    if (gain.stderr !== null) body.push(line(cx, y(gain.mean - gain.stderr), cx, y(gain.mean + gain.stderr), colour));
    body.push(`<circle cx="${cx}" cy="${cy}" r="5" fill="${colour}"/>`);
  }
  Object.entries(COLOURS).forEach(([name, colour], at) => {
    body.push(`<circle cx="${left + 20}" cy="${top + 16 + 20 * at}" r="5" fill="${colour}"/>`);
    body.push(text([left + 32, top + 20 + 20 * at], name, INK, 'start'));
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">${body.join('')}</svg>`;
}

await main();
