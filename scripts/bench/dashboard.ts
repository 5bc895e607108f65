/**
 * The dashboard with 5,000 runs, ten of 10,000 lines of metrics and one of 100,000: the time to read them, to list them and to draw curves and,
 * if Chromium is installed, the time until the page can be used, and until ten runs are overlaid.
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { newToken } from '../../src/launch/servers/token.js';
import { startDashboard } from '../../src/web/server.js';
import { writeRun } from './made_runs.js';

const RUNS = 5_000;
const LINES = 100_000;
const ROUNDS = 15;
const LONG_RUN = 'long_run';
const OVERLAID = 10;
const OVERLAID_LINES = 10_000;
const overlaid = (index: number): string => `overlaid_${index}`;
/** The paths of Chromium on Debian. */
const BROWSERS = ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium'];

/** `--keep FOLDER` keeps the runs in a folder, and reuses runs that are already there. */
export async function benchDashboard(): Promise<void> {
  const keep = process.argv.indexOf('--keep');
  const kept = keep < 0 ? undefined : process.argv[keep + 1];
  const folder = kept ?? mkdtempSync(join(tmpdir(), 'editrl-dashboard-runs-'));
  try {
    if (!existsSync(join(folder, LONG_RUN))) {
      const began = performance.now();
      writeManyRuns(folder, RUNS);
      writeRun(folder, { name: LONG_RUN, state: 'finished', iteration: LINES, numIterations: LINES });
      for (let i = 0; i < OVERLAID; i++) {
        const lines = { iteration: OVERLAID_LINES, numIterations: OVERLAID_LINES, seed: i, level: 3 + i / 2 };
        writeRun(folder, { name: overlaid(i), state: 'finished', ...lines });
      }
      say(
        `wrote ${RUNS} runs, ${OVERLAID} of ${OVERLAID_LINES} lines and one of ${LINES} lines`,
        performance.now() - began,
      );
    }
    await measure(folder);
  } finally {
    if (kept === undefined) rmSync(folder, { recursive: true, force: true });
  }
}

/** Matrices of 50 cells each: two rewards, five KL coefficients, five seeds. */
export function writeManyRuns(folder: string, count: number): void {
  const states = ['finished', 'finished', 'finished', 'failed', 'interrupted'] as const;
  for (let i = 0; i < count; i++) {
    const experiment = Math.floor(i / 50);
    const [reward, kl, seed] = [
      i % 2 === 0 ? 'viescore' : 'ground',
      Math.floor(i / 2) % 5,
      (Math.floor(i / 10) % 5) + 1,
    ];
    const state = states[i % states.length];
    writeRun(folder, {
      name: `exp_${String(experiment).padStart(3, '0')}__kl-${kl}e-4__reward-${reward}__seed-${seed}`,
      state,
      iteration: state === 'finished' ? 40 : 10 + (i % 20),
      numIterations: 40,
      reason: state === 'failed' ? 'the worker of rank 0 ended with exit code 3' : null,
      algorithm: { kl_coeff: kl * 1e-4 },
      reward: { mode: reward === 'ground' ? 'ground_score' : 'viescore' },
      seed,
      level: 3 + ((i * 7) % 40) / 10,
      at: Date.UTC(2026, 0, 1) + i * 60_000,
    });
  }
}

async function measure(folder: string): Promise<void> {
  const token = newToken();
  const dashboard = await startDashboard({
    port: 0,
    token,
    folders: [folder],
    program: [],
    onDefect: (error) => console.error(error),
  });
  const began = performance.now();
  try {
    const ask = async (path: string): Promise<{ ms: number; body: unknown }> => {
      const start = performance.now();
      const reply = await fetch(`${dashboard.url}${path}`, { headers: { authorization: `Bearer ${token}` } });
      const body: unknown = await reply.json();
      if (!reply.ok) throw new Error(`${path}: ${JSON.stringify(body)}`);
      return { ms: performance.now() - start, body };
    };
    say('the first list while runs are still being read', (await ask('/api/runs')).ms);
    await dashboard.read;
    say('all runs read', performance.now() - began);
    const lists = [
      '/api/runs?sort=held_out',
      '/api/runs?filter=kl_coeff%3C%3D2e-4%20state%3Dfinished&sort=optimizer.learning_rate&column=algorithm.kl_coeff&column=seed',
      '/api/runs?sort=name&descending=false&offset=4900&limit=500',
      '/api/keys',
      '/api/experiments',
      '/api/experiment?id=0/exp_042',
    ];
    for (const path of lists) await rounds(path, () => ask(path));
    const metrics = ['reward/mean', 'policy/loss', 'policy/kl', 'validation/sampled/mean', 'time/total']
      .map((metric) => `metric=${encodeURIComponent(metric)}`)
      .join('&');
    const curves = `/api/curves?run=0/${LONG_RUN}&${metrics}`;
    const first = await ask(curves);
    say(`curves of ${LINES} lines, first (${isSampled(first.body) ? 'some lines for all' : 'all lines'})`, first.ms);
    const start = performance.now();
    for (let wait = true; wait;) wait = isSampled((await ask(curves)).body);
    say('until all its lines are read', performance.now() - start);
    await rounds(curves.slice(0, 40), () => ask(curves));
    await rounds('zoomed', () => ask(`${curves}&from=50000&to=51000`));
    const runs = Array.from({ length: OVERLAID }, (_, i) => `run=0/${overlaid(i)}`).join('&');
    const untilRead = async (): Promise<void> => {
      while (isSampled((await ask(`/api/curves?${runs}&metric=policy/loss`)).body)) await setTimeout(100);
    };
    await measurePage(`${dashboard.url}/#token=${token}`, runs, untilRead);
    say('resident memory in MB', process.memoryUsage().rss / 1e6);
  } finally {
    await dashboard.close();
  }
}

function isSampled(body: unknown): boolean {
  return (body as { sampled: boolean }).sampled;
}

async function rounds(name: string, once: () => Promise<{ ms: number }>): Promise<void> {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) times.push((await once()).ms);
  times.sort((a, b) => a - b);
  console.log(
    `${name.padEnd(60).slice(0, 60)} median ${(times[ROUNDS >> 1] ?? 0).toFixed(1)} ms, most ${(times.at(-1) ?? 0).toFixed(1)} ms`,
  );
}

async function measurePage(address: string, overlaidRuns: string, untilRead: () => Promise<void>): Promise<void> {
  const executablePath = BROWSERS.find((path) => existsSync(path));
  if (executablePath === undefined) {
    console.log(`no page was measured: there is no ${BROWSERS.join(' or ')}`);
    return;
  }
  const { chromium } = await import('playwright-core');
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
  try {
    for (const cold of ['cold', 'warm']) {
      const page = await browser.newPage();
      const start = performance.now();
      await page.goto(address);
      await page.locator('table.runs tbody tr').nth(99).waitFor();
      say(`the page with its first 100 rows, ${cold}`, performance.now() - start);
      await page.locator('#filter').fill('exp_042');
      const typed = performance.now();
      await page.getByText('50 of ').waitFor();
      say('the list after a word was written in the filter', performance.now() - typed);
      await page.close();
    }
    for (const time of ['first', 'read already']) {
      const page = await browser.newPage();
      await page.goto(address);
      await page.locator('table.runs tbody tr').first().waitFor();
      const asked = performance.now();
      await page.evaluate(`location.hash = '#/compare?${overlaidRuns}'`);
      await page.getByRole('img', { name: /^reward in training: .*overlaid_9/ }).waitFor();
      say(`the curves of ${OVERLAID} runs of ${OVERLAID_LINES} lines, ${time}`, performance.now() - asked);
      await page.close();
      await untilRead();
    }
  } finally {
    await browser.close();
  }
}

function say(what: string, value: number): void {
  console.log(`${what.padEnd(60)} ${value.toFixed(what.includes('MB') ? 0 : 1)}${what.includes('MB') ? '' : ' ms'}`);
}
