import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import type { ExamCosts } from '../../src/rewards/exam/costs.js';
import { encodePlainPng } from '../../src/core/images/png.js';
import { JUDGE_MODEL, startJudge, type JudgeOptions, type RunningJudge } from '../../src/rewards/rule_judge/server.js';
import { testFolders } from '../support/folder.js';
import { capture } from './run_directory.js';

const newFolder = testFolders('judge-exam');
let folder = '';
const judges: RunningJudge[] = [];
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Listeners that were there before: the command listens to signals as long as its process lives. */
let listeners: readonly (readonly [(typeof SIGNALS)[number], readonly unknown[]])[] = [];
beforeEach(() => {
  folder = newFolder();
  listeners = SIGNALS.map((name) => [name, process.listeners(name)]);
  vi.stubEnv('APP__BASE_EXP_DIR', join(folder, 'runs'));
  vi.stubEnv('COLUMNS', '80');
});
afterEach(async () => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  for (const [name, before] of listeners) {
    for (const one of process.listeners(name)) if (!before.includes(one)) process.off(name, one);
  }
  await Promise.all(judges.splice(0).map((judge) => judge.close()));
});

async function judge(options: Partial<JudgeOptions> = {}): Promise<RunningJudge> {
  const started = await startJudge({ port: 0, host: '127.0.0.1', ...options });
  judges.push(started);
  return started;
}

const exam = (url: string, ...more: readonly string[]): string[] => [
  ...['judge', 'exam', '--endpoint', url, '--model', JUDGE_MODEL, '--cases', '21', ...more],
];

interface Printed {
  readonly folder: string;
  readonly marks: {
    readonly findings: readonly {
      readonly name: string;
      readonly accused: boolean;
      readonly estimate: { readonly mean: number };
    }[];
  };
  readonly verdict: { readonly teaches: string };
  readonly judgements: { readonly count: number };
  readonly costs: ExamCosts;
  readonly against?: { readonly fidelity: { readonly mean: number; readonly stderr: number } };
}

describe('editrl judge exam', () => {
  it('prints a verdict, marks and tests that fit a terminal, and keeps them among the runs', async () => {
    const { url } = await judge({ biases: { copies: 0.5 } });
    const written = capture();
    expect(await main(exam(url))).toBe(0);
    const lines = written.out.split('\n');
    const tabular = lines.filter((line) => /±|──/.test(line));
    expect(Math.max(...tabular.map((line) => line.length))).toBeLessThanOrEqual(80);
    expect(lines[0]).toContain(`${JUDGE_MODEL}, reward 'viescore': 21 cases of tiny`);
    expect(written.out).toContain('It rewards a copy of the source');
    expect(written.out).toMatch(/^gain by a copy +0\.7\d\d ± 0\.\d+ +at most 0\.05 +fault: copies$/m);
    expect(written.out).toMatch(/^right above copy +1\.000 ± 0\.000 +at least 0\.75 +ok$/m);
    // 21 cases of 7 answers twice and 5 tricks, two questions each.
    expect(written.out).toContain('798 judgements, 798 requests\n');
    expect(written.out).toMatch(/^tokens +\d{3} \+ \d\d +mean per question with its reply$/m);
    expect(written.out).toMatch(/^seconds +\d.+ to \d.+ +per question: median and 95th percentile$/m);
    const kept = lines.at(-2) ?? '';
    expect(kept).toMatch(/runs\/exams\/editrl_rule_judge-[0-9a-f]{8}-tiny$/);
    const record = JSON.parse(readFileSync(join(kept, 'exam.json'), 'utf8')) as { format: number; set: string };
    expect(record).toMatchObject({ format: 1, set: 'tiny', repeats: 2 });
  });

  it('asks nothing twice: the same exam again is read from its records', async () => {
    const server = await judge();
    const { url } = server;
    const first = capture();
    expect(await main(exam(url, '--json'))).toBe(0);
    const asked = server.stats().requests;
    vi.restoreAllMocks();
    const second = capture();
    expect(await main(exam(url, '--json'))).toBe(0);
    const [one, two] = [first, second].map(({ out }) => JSON.parse(out) as Printed);
    expect(two.marks).toEqual(one.marks);
    // Opening asks one small question to learn what the server takes.
    expect(server.stats().requests - asked).toBeLessThanOrEqual(1);
    expect(existsSync(join(one.folder, 'lock'))).toBe(false);
  });

  it('compares two judges case by case', async () => {
    const [sound, noisy] = [await judge(), await judge({ biases: { noise: 0.4 } })];
    const out = join(folder, 'sound');
    capture();
    expect(await main(exam(sound.url, '--out', out))).toBe(0);
    vi.restoreAllMocks();
    const written = capture();
    expect(await main(exam(noisy.url, '--out', join(folder, 'noisy'), '--against', out))).toBe(0);
    expect(written.out).toMatch(/difference in fidelity: -0\.\d+ ± 0\.\d+\nThe other judge is better\./);
    vi.restoreAllMocks();
    const wrong = capture();
    const other = exam(sound.url, '--cases', '22', '--out', join(folder, 'more'), '--against', out);
    expect(await main(other.filter((_, i) => i !== 6 && i !== 7))).toBe(2);
    expect(wrong.error).toContain('--against: found an exam of 21 cases');
  });

  it('examines a judge of words on answers in words, and shows them as a table', async () => {
    const { url } = await judge({ biases: { length: 0.5 } });
    const written = capture();
    expect(await main(exam(url, '--terms', 'answer_judge', '--out', join(folder, 'words'), '--html'))).toBe(0);
    expect(written.out).toContain('It rewards a longer answer.');
    expect(written.out).toMatch(/^gain by a longer answer +0\.4\d+ ± 0\.\d+ +at most 0\.05 +fault: length$/m);
    // 21 cases of 7 answers twice and 5 tricks.
    expect(written.out).toContain('399 judgements, 399 requests\n');
    const page = readFileSync(join(folder, 'words', 'exam.html'), 'utf8');
    expect(page).toContain('That depends on how one looks at it');
    const sample = readFileSync(join(folder, 'words', 'sample.jsonl'), 'utf8')
      .trim()
      .split('\n');
    expect(sample).toHaveLength(20);
    expect(JSON.parse(sample[0])).toMatchObject({ name: 'right of case 0', repeats: 2 });
  });

  it('reports what is missing if neither a config nor a judge is named', async () => {
    const written = capture();
    expect(await main(['judge', 'exam'])).toBe(2);
    expect(written.error).toContain('found neither a config nor --endpoint');
  });

  it('rejects an --against that is no exam before it asks anything', async () => {
    const server = await judge();
    const { url } = server;
    const written = capture();
    expect(await main(exam(url, '--against', join(folder, 'nowhere')))).toBe(1);
    expect(written.error).toContain('cannot read the exam');
    expect(server.stats().requests).toBe(0);
  });

  it('rejects a reward that cannot score what it shows, before it asks anything', async () => {
    const server = await judge();
    const words = capture();
    expect(await main(exam(server.url, '--terms', 'word_overlap=0.5,viescore=0.5'))).toBe(2);
    expect(words.error).toContain("found the term 'viescore', which reads images; allowed: terms for a text answer");
    vi.restoreAllMocks();
    const picture = (name: string, level: number): string => {
      const data = new Uint8Array(40 * 40 * 3).fill(level);
      writeFileSync(join(folder, name), encodePlainPng({ width: 40, height: 40, data }));
      return name;
    };
    const [source, better, worse] = [picture('a.png', 10), picture('b.png', 20), picture('c.png', 30)];
    const file = join(folder, 'pairs.jsonl');
    writeFileSync(file, `${JSON.stringify({ source, better, worse, instruction: 'lighten it' })}\n`);
    const pairs = capture();
    expect(await main(exam(server.url, '--terms', 'ground_score', '--pairs', file))).toBe(2);
    expect(pairs.error).toContain("found the term 'ground_score', which compares with a labeled result");
    vi.restoreAllMocks();
    const pictures = capture();
    expect(await main(exam(server.url, '--terms', 'answer_judge', '--pairs', file))).toBe(2);
    expect(pictures.error).toContain("found the term 'answer_judge', which reads words; allowed: terms for an edited");
    writeFileSync(file, `${JSON.stringify({ question: 'What is 2 + 3?', better: '5', worse: '6' })}\n`);
    vi.restoreAllMocks();
    const unlabelled = capture();
    expect(await main(exam(server.url, '--terms', 'word_overlap', '--pairs', file))).toBe(2);
    expect(unlabelled.error).toContain("found the term 'word_overlap', which compares with a labeled answer");
    expect(unlabelled.error).toContain('Give each line a "reference"');
    expect(server.stats().requests).toBe(0);
  });

  it("examines a config's whole reward: a sum pays a copy of the source for its likeness", async () => {
    const { url } = await judge();
    const terms = [
      { name: 'viescore', weight: 0.2 },
      { name: 'image_similarity', to: 'source', of: 'all', weight: 0.8 },
    ];
    const written = capture();
    const config = ['judge', 'exam', 'configs/sft_s__rl_s.jsonnet', '--with', 'configs/lib/tiny.libsonnet'];
    const sets = ['reward.mode=null', `reward.terms=${JSON.stringify(terms)}`, `reward.endpoint=${url}`];
    const words = [...config, ...sets.flatMap((set) => ['--set', set]), '--cases', '21', '--json'];
    expect(await main([...words, '--out', join(folder, 'sum')])).toBe(0);
    const { marks, verdict } = JSON.parse(written.out) as Printed;
    const copies = marks.findings.find(({ name }) => name === 'copies');
    expect(copies?.estimate.mean).toBeGreaterThan(0);
    expect(verdict.teaches).toBe('yes');
  });
});
