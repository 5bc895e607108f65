/**
 * `npm run mutate:pairs [-- IDS]`: puts each mistake of the table, or each named one, into its source, runs the fast tests that should
 * notice it, and reports whether they did. Exits with 1 if a mistake was not noticed or no longer matches its source. The files
 * do not change: the mistake is inserted while vitest reads the source, so nothing has to be restored after an interruption.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { UsageError } from '../../src/core/errors.js';
import { mismatch, type Pair } from './pair.js';
import { pairs } from './pairs/table.js';

/** Far more than any test file needs: a mistake has made the tests endless if they still run after this time. */
const LONGEST_MS = 300_000;

/** The fields of vitest's JSON report that are read here. */
interface Results {
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly message: string;
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[];
  }[];
}

interface Run {
  readonly failed: readonly string[];
  /** Why the tests did not run properly; null if they did. */
  readonly broken: string | null;
  readonly endless: boolean;
}

const folder = mkdtempSync(join(tmpdir(), 'editrl-pairs-'));
let running: ReturnType<typeof spawn> | null = null;

async function runTests(tests: readonly string[], pair: Pair | null): Promise<Run> {
  const results = join(folder, 'results.json');
  rmSync(results, { force: true });
  const child = spawn(
    process.execPath,
    [
      ...['node_modules/vitest/vitest.mjs', 'run', '--config', 'vitest.mutate.config.ts'],
      ...['--reporter', 'json', '--outputFile', results, ...(pair === null ? [] : ['--bail', '1'])],
    ],
    {
      env: {
        ...process.env,
        // Files that killed tests leave behind are removed with the folder.
        TMPDIR: folder,
        MUTATE_TESTS: JSON.stringify(tests),
        ...(pair === null ? {} : { MUTATE_PAIR: JSON.stringify({ ...pair, file: resolve(pair.file) }) }),
      },
      stdio: ['ignore', 'ignore', 'pipe'],
      // The child leads its own process group, so that its workers can be killed with it.
      detached: true,
    },
  );
  running = child;
  let errors = '';
  child.stderr.on('data', (data: Buffer) => (errors += data.toString('utf8')));
  let endless = false;
  const timer = setTimeout(() => {
    endless = true;
    killGroup(child);
  }, LONGEST_MS);
  await new Promise((done) => child.on('close', done));
  clearTimeout(timer);
  running = null;
  if (endless) return { failed: [], broken: null, endless };
  let read: Results;
  try {
    read = JSON.parse(readFileSync(results, 'utf8')) as Results;
  } catch {
    return { failed: [], broken: `vitest wrote no results: ${errors.trim().slice(-2000)}`, endless };
  }
  const failed = read.testResults.flatMap(({ assertionResults }) =>
    assertionResults.filter(({ status }) => status === 'failed').map(({ fullName }) => fullName),
  );
  const unread = read.testResults.find(({ status, message }) => status === 'failed' && message !== '');
  const none = read.testResults.length < tests.length && failed.length === 0 ? 'not every named test file ran' : null;
  return { failed, broken: failed.length > 0 ? null : (unread?.message ?? none), endless };
}

function killGroup({ pid }: ReturnType<typeof spawn>): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // The process has already ended.
  }
}

type Verdict = 'noticed' | 'survived' | 'broken' | 'no longer matches' | 'equivalent';

async function judge(pair: Pair): Promise<readonly [Verdict, string]> {
  const wrong = mismatch(pair);
  if (wrong !== null) return ['no longer matches', wrong];
  if (pair.equivalent !== undefined) return ['equivalent', pair.equivalent];
  const { failed, broken, endless } = await runTests(pair.tests, pair);
  if (endless) return ['noticed', `the tests had not ended after ${LONGEST_MS / 1000} s`];
  if (broken !== null) return ['broken', broken];
  return failed.length > 0 ? ['noticed', failed[0]] : ['survived', pair.tests.join(' ')];
}

async function main(ids: readonly string[]): Promise<number> {
  const unknown = ids.find((id) => !pairs.some((pair) => pair.id === id));
  if (unknown !== undefined) {
    const allowed = pairs.map(({ id }) => id).join(', ');
    throw new UsageError(`found '${unknown}'; allowed: ids of pairs: ${allowed}`, {
      next: 'npm run mutate:pairs runs all of them.',
    });
  }
  const chosen = ids.length === 0 ? pairs : pairs.filter(({ id }) => ids.includes(id));
  const tests = [...new Set(chosen.flatMap((pair) => (pair.equivalent === undefined ? pair.tests : [])))].sort();
  // Tests that fail without any mistake would notice everything.
  const plain: Run = tests.length === 0 ? { failed: [], broken: null, endless: false } : await runTests(tests, null);
  if (plain.failed.length > 0 || plain.broken !== null || plain.endless) {
    console.error('These tests fail on the sources as they are; no mistake was tried:');
    console.error([...plain.failed, plain.broken ?? (plain.endless ? 'they do not end' : '')].join('\n'));
    return 1;
  }
  const counts = new Map<Verdict, number>();
  for (const pair of chosen) {
    const [verdict, why] = await judge(pair);
    counts.set(verdict, (counts.get(verdict) ?? 0) + 1);
    console.log(`${verdict.padEnd(17)}  ${pair.id.padEnd(34)}  ${why}`);
  }
  console.log(`\n${[...counts].map(([verdict, count]) => `${count} ${verdict}`).join(', ')}`);
  const good: ReadonlySet<Verdict> = new Set(['noticed', 'equivalent']);
  return [...counts.keys()].every((verdict) => good.has(verdict)) ? 0 : 1;
}

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => {
    if (running !== null) killGroup(running);
    rmSync(folder, { recursive: true, force: true });
    process.exit(signal === 'SIGINT' ? 130 : 143);
  });
}
try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  console.error(error.toText());
  process.exitCode = error.exitCode;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
