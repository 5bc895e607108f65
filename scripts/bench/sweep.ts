/**
 * The overhead of a sweep in addition to its runs: the time until the first worker's first line, and the time between
 * runs.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { RunError } from '../../src/core/errors.js';

const RUNS = 200;
const SLOTS = 2;
const STARTS = 5;
const MOST_SECONDS_PER_RUN = 0.03;
const MOST_SECONDS_TO_START = 1.5;

/** Prints both figures and their limits. `EDITRL_BENCH_RUNS` makes the matrix smaller. */
export async function benchSweep(): Promise<void> {
  const runs = Number(process.env['EDITRL_BENCH_RUNS'] ?? RUNS);
  const firstLines: number[] = [];
  for (let start = 0; start < STARTS; start++) firstLines.push(await secondsToFirstLine());
  firstLines.sort((a, b) => a - b);
  const start = firstLines[Math.floor(STARTS / 2)];
  console.log(
    `from \`editrl sweep\` to the first worker's first line: median ${start.toFixed(2)} s, worst ${firstLines[STARTS - 1].toFixed(2)} s of ${STARTS} (at most ${MOST_SECONDS_TO_START} s)`,
  );
  const seconds = await secondsOfSleeps(runs);
  // The start has a limit of its own.
  const beyond = ((seconds - start) * SLOTS) / runs - 1;
  console.log(
    `${runs} runs of \`sleep 1\` on ${SLOTS} slots: ${seconds.toFixed(1)} s with start and table; without the start ${beyond.toFixed(4)} s each beyond their second (at most ${MOST_SECONDS_PER_RUN} s)`,
  );
}

/** The seconds until the first worker's first line. The worker records that time. */
async function secondsToFirstLine(): Promise<number> {
  return inFolder(async (folder) => {
    const file = writeExperiment(folder, 2, ['sh', '-c', 'date +%s.%N']);
    const began = Date.now() / 1000;
    await callSweep(file);
    const spoken = runLogs(join(folder, 'runs')).map((log) =>
      Number(/(\d{9,}\.\d+)/.exec(readFileSync(log, 'utf8'))?.[1]),
    );
    return Math.min(...spoken) - began;
  });
}

async function secondsOfSleeps(runs: number): Promise<number> {
  return inFolder(async (folder) => {
    const file = writeExperiment(folder, runs, ['sleep', '1']);
    const began = performance.now();
    await callSweep(file);
    return (performance.now() - began) / 1000;
  });
}

function writeExperiment(folder: string, runs: number, command: readonly string[]): string {
  const seeds = Object.fromEntries(Array.from({ length: runs }, (_, seed) => [String(seed), { seed }]));
  const base = {
    run_name: 'bench',
    base_exp_dir: join(folder, 'runs'),
    task: 'external',
    num_iterations: 1,
    launch: { command },
  };
  const file = join(folder, 'bench.jsonnet');
  writeFileSync(file, JSON.stringify({ name: 'bench', base, axes: { seed: seeds } }));
  return file;
}

function runLogs(runs: string): string[] {
  return readdirSync(runs)
    .filter((name) => name.startsWith('bench__'))
    .map((name) => join(runs, name, 'logs', 'console.log'));
}

/** Raises RunError when the sweep does not finish. */
async function callSweep(file: string): Promise<void> {
  const main = resolve(import.meta.dirname, '../../src/cli/main.js');
  const child = spawn(process.execPath, [main, 'sweep', file, '--max-parallel', String(SLOTS), '--json'], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
  const code = await new Promise<number | null>((done) => child.once('close', done));
  if (code !== 0) throw new RunError(`the sweep ended with ${code}: ${said.trim()}`);
}

async function inFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'editrl-bench-'));
  try {
    return await work(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
