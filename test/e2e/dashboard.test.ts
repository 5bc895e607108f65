/** `editrl dashboard` in a real browser, over runs that were trained, that are being trained, and that are broken in every way. */
import { readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import axe from 'axe-core';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, inject, it } from 'vitest';
import { recordGrid, writeMadeEpisodes, writeRun } from '../web/made_runs.js';
import { noBrowser, openBrowser } from '../support/browser.js';
import { Place, RL, START, until, type Live } from './editrl.js';

const hostile =
  '<img src=x onerror="document.title=\'owned\'"> \u202eevil\u001b[31m <script>document.title="owned"</script>';

/** What a training takes to start, on a machine that others keep busy. */
const LONG = 120_000;

interface Address {
  readonly url: string;
  readonly address: string;
  readonly token: string;
}

describe.skipIf(noBrowser !== null)('the dashboard in a browser', () => {
  let place: Place;
  let command: Live;
  let at: Address;
  let browser: Browser;
  let context: BrowserContext;
  let page: Page;
  /** What the page complained of: of scripts that are refused, too. */
  const complaints: string[] = [];
  const lives: Live[] = [];

  beforeAll(async () => {
    place = Place.make(inject('template'));
    await makeRuns(place.runs);
    command = place.start(['dashboard', '--port', '0', '--json']);
    await until('the dashboard is there', () => command.out().includes('\n') || !command.isAlive());
    at = JSON.parse(command.out()) as Address;
    browser = await openBrowser();
  });

  afterAll(async () => {
    await browser.close();
    for (const live of lives) live.kill('SIGKILL');
    command.kill('SIGTERM');
    expect((await command.ended).code).toBe(0);
    place.remove();
  });

  afterEach(async () => {
    await context.close();
    expect(complaints.splice(0)).toEqual([]);
  });

  async function open(
    hash = '',
    { width = 1280, height = 900, dark = false, address = at.address } = {},
  ): Promise<Page> {
    context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? 'dark' : 'light' });
    page = await context.newPage();
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('console', (message) => {
      if (message.type() === 'error') complaints.push(message.text());
    });
    await page.goto(address);
    if (hash !== '') await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
    return page;
  }

  const row = (name: string) =>
    page.locator('table.runs tbody tr').filter({ has: page.getByRole('link', { name, exact: true }) });

  it('lists runs with their states, and takes the token out of its address', async () => {
    await open();
    await expect.poll(() => row(RL).textContent()).toContain('finished');
    expect(page.url()).toBe(`${at.url}/`);
    await expect.poll(() => row('broken').textContent()).toContain('unreadable');
    await expect.poll(() => row('made_failed').textContent()).toContain('failed');
    await expect.poll(() => row('made_early').textContent()).toContain('7/9stopped early');
  });

  it('keeps what is typed on while the list is filtered by what was typed before', async () => {
    await open();
    await row(RL).waitFor();
    // Types the second half when the address has just taken the first, before the page is painted.
    await page.evaluate(`
      const field = document.getElementById('filter');
      const replace = history.replaceState.bind(history);
      history.replaceState = (...all) => {
        replace(...all);
        history.replaceState = replace;
        setTimeout(() => {
          field.value += '=finished';
          field.dispatchEvent(new Event('input', { bubbles: true }));
        });
      };`);
    await page.locator('#filter').fill('state');
    await expect.poll(() => page.url()).toContain('filter=state%3Dfinished');
    expect(await page.locator('#filter').inputValue()).toBe('state=finished');
    // What half a filter lacks was said meanwhile.
    expect(complaints.splice(0).filter((text) => !text.includes('400'))).toEqual([]);
  });

  it('filters and sorts by settings, with the keyboard alone', async () => {
    await open();
    await row(RL).waitFor();
    await page.keyboard.press('/');
    await page.keyboard.type('grid kl_coeff<=1e-4 state=finished');
    await expect.poll(() => page.locator('.summary').textContent()).toContain('4 of ');
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'held-out' }).click();
    await expect.poll(() => page.locator('th[aria-sort]').textContent()).toContain('held-out');
    await expect.poll(() => page.locator('tbody tr').first().textContent()).toContain('kl-1e-4__seed-2');
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'grid__kl-1e-4__seed-2' }).waitFor();
    await page.getByRole('link', { name: 'runs', exact: true }).click();
    await row(RL).waitFor();
  });

  it('shows hack alarms in the list and on the run, and finds the runs that have one', async () => {
    await open();
    await expect.poll(() => row('made_alarm').textContent()).toContain('hack alarm repeat_rate');
    await page.locator('#filter').fill('alarm!=none');
    await expect.poll(() => page.locator('table.runs tbody tr').count()).toBe(1);
    await page.getByRole('link', { name: 'made_alarm', exact: true }).click();
    const banner = page.getByRole('region', { name: 'Hack alarms' });
    await expect.poll(() => banner.textContent()).toContain('repeat_rate since iteration 12');
    expect(await banner.textContent()).toContain('track.alarms.limits.repeat_rate: max_rise 0.2');
    const marked = page.getByRole('img', { name: /hack\/repeat_rate .*alarm from iteration 12 to 20/ });
    await marked.waitFor();
    await banner.getByRole('link', { name: 'its curve' }).click();
    await expect.poll(() => page.locator('.chart').count()).toBe(1);
  });

  it('compares runs that were selected, under an address that can be shared', async () => {
    await open();
    await row('made_alarm').waitFor();
    await page.getByLabel('compare made_alarm').check();
    await page.locator('#filter').fill('made_episodes');
    await page.getByLabel('compare made_episodes').check();
    await page.getByRole('link', { name: 'compare', exact: true }).click();
    await page.getByRole('heading', { name: 'Comparison of 2 runs' }).waitFor();
    const chart = page.getByRole('img', { name: /^training reward: A: made_alarm .*; B: made_episodes / });
    await chart.waitFor();
    await page.getByLabel('logarithmic').check();
    await expect.poll(() => page.locator('.charts').textContent()).toContain('linear axis');
    await page.reload();
    await chart.waitFor();
    expect(await page.getByLabel('logarithmic').isChecked()).toBe(true);
    await page.getByRole('button', { name: 'remove made_alarm' }).click();
    await page.getByRole('heading', { name: 'One run' }).waitFor();
  });

  it('cuts no cell of the list, on a phone or beside the columns of settings', async () => {
    for (const width of [375, 1024]) {
      await open('#/?column=algorithm.kl_coeff&column=policy.model.run', { width });
      await row('made_alarm').waitFor();
      const cut = await page
        .locator('table.runs td')
        .evaluateAll((all) =>
          (all as unknown as { scrollWidth: number; clientWidth: number; textContent: string }[])
            .filter((cell) => cell.scrollWidth > cell.clientWidth)
            .map((cell) => cell.textContent),
        );
      expect(cut, `${width} pixels`).toEqual([]);
      if (width === 375) await context.close();
    }
  });

  it('compares all runs of the cells that were selected in an experiment', async () => {
    await open('#/experiment/0/grid');
    await page.getByLabel('compare kl 0').check();
    const selected = page.locator('.picked');
    await expect.poll(() => selected.textContent()).toContain('1 cell is selected, with 2 runs');
    await page.getByLabel('compare kl 1e-4').check();
    await page.reload();
    await expect.poll(() => selected.textContent()).toContain('2 cells are selected, with 4 runs');
    await page.getByLabel('compare kl 0').uncheck();
    await selected.getByRole('link', { name: 'compare' }).click();
    await page.getByRole('heading', { name: 'Comparison of 2 runs' }).waitFor();
    expect(await page.locator('.compared').textContent()).toMatch(/kl-1e-4__seed-1.*kl-1e-4__seed-2/);
  });

  it('follows a run that is being trained, and stops, resumes and starts it again', async () => {
    rmSync(place.run(RL), { recursive: true });
    const live = place.startTraining(
      RL,
      '--set',
      'num_iterations=2000',
      '--set',
      'checkpoint.save_every_n_iterations=1000',
    );
    lives.push(live);
    await open();
    await expect.poll(() => row(RL).textContent(), { timeout: LONG }).toContain('running');
    await row(RL).getByRole('link').click();
    const iteration = async (): Promise<number> =>
      Number.parseInt((await page.locator('main .progress-text').first().textContent()) ?? '0');
    await expect.poll(iteration, { timeout: LONG }).toBeGreaterThan(2);
    const before = await iteration();
    await expect.poll(iteration, { timeout: LONG }).toBeGreaterThan(before);
    await page.getByRole('link', { name: 'log' }).click();
    await expect.poll(() => page.locator('.log').textContent(), { timeout: LONG }).toContain('iteration');

    await page.getByRole('button', { name: 'stop', exact: true }).click();
    await expect.poll(() => page.getByRole('dialog').textContent()).toContain(`editrl stop ${RL}`);
    await page.getByRole('dialog').getByRole('button', { name: 'stop' }).click();
    await expect.poll(() => page.locator('h1 + .state').textContent(), { timeout: LONG }).toBe('interrupted');
    expect((await live.ended).code).toBe(130);

    await page.getByRole('button', { name: 'resume' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'resume' }).click();
    await expect.poll(() => page.locator('h1 + .state').textContent(), { timeout: LONG }).toBe('running');
    await page.getByRole('button', { name: 'kill' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'kill' }).click();
    await expect.poll(() => page.locator('h1 + .state').textContent(), { timeout: LONG }).toBe('interrupted');

    await page.getByRole('button', { name: 'restart' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'restart' }).click();
    await expect.poll(() => page.locator('h1 + .state').textContent(), { timeout: LONG }).toBe('running');
    expect(place.attempts(RL)).toBe(1);
    await page.getByRole('button', { name: 'stop', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'stop' }).click();
    await expect.poll(() => page.locator('h1 + .state').textContent(), { timeout: LONG }).toBe('interrupted');
    await page.getByRole('link', { name: 'runs', exact: true }).click();
    await row(`${RL}.old-1`).waitFor({ timeout: LONG });
    // While it was set aside there was no such run.
    expect(complaints.splice(0).filter((text) => !text.includes('404'))).toEqual([]);
  }, 600_000);

  it('shows curves with their values, as images and in words', async () => {
    await open(`#/run/0/${START}`);
    const charts = page.locator('.chart .plot');
    await charts.first().locator('canvas').waitFor();
    await expect.poll(() => charts.first().getAttribute('aria-label')).toMatch(/at iteration \d+, .* at 1/);
    await page.getByLabel('metrics').fill('grad_norm');
    await expect.poll(() => charts.count()).toBe(1);
    const from = page.getByLabel('from iteration');
    await from.pressSequentially('1');
    // As when something is measured while somebody types.
    await page.evaluate("dispatchEvent(new Event('popstate'))");
    await page.evaluate('new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))');
    expect(await from.inputValue()).toBe('1');
    await from.fill('5');
    await page.keyboard.press('Tab');
    await expect.poll(() => charts.first().getAttribute('aria-label')).toContain('at iteration 5,');
    await page.getByRole('button', { name: 'all iterations' }).click();
    await expect.poll(() => charts.first().getAttribute('aria-label')).toContain('at iteration 1,');
  });

  it('leaves the charts alone while nothing new is measured: the clock ticks, and what the cursor points at stays', async () => {
    await open('#/run/0/made_episodes');
    const plot = page.locator('.chart .plot .u-over').first();
    await plot.hover({ position: { x: 200, y: 60 } });
    const legend = page.locator('.chart .legend b').first();
    await expect.poll(() => legend.textContent()).toContain('@');
    await page.evaluate(`
      window.redrawn = 0;
      new MutationObserver((all) => (window.redrawn += all.length)).observe(document.querySelector('.charts'), {
        subtree: true, childList: true, characterData: true, attributes: true,
      });`);
    // Two ticks of the clock and more.
    await new Promise((resolve) => setTimeout(resolve, 2_500));
    expect(await page.evaluate('window.redrawn')).toBe(0);
    expect(await legend.textContent()).toContain('@');
  });

  it('browses episodes, with images and the words of the judge', async () => {
    await open('#/run/0/made_episodes?tab=episodes');
    const cards = page.locator('.episode');
    await expect.poll(() => cards.count()).toBe(24);
    await expect.poll(() => cards.first().locator('img').count()).toBe(3);
    await page.getByLabel('outcome').selectOption('unscored');
    await expect.poll(() => cards.count()).toBe(6);
    await page.getByLabel('outcome').selectOption('');
    await page.locator('body').click({ position: { x: 5, y: 300 } });
    await page.keyboard.press('[');
    await expect.poll(() => page.url()).toContain('iteration=15');
    await cards.first().getByRole('button', { name: 'judge replies' }).click();
    await expect.poll(() => cards.first().locator('.judgements').textContent()).toContain('changed as asked');
  });

  it('shows hostile text as text, and images that are missing as gone', async () => {
    await open('#/run/0/made_hostile?tab=episodes');
    await page.locator('.episode').first().waitFor();
    await expect.poll(() => page.locator('.instruction').first().textContent()).toContain('<img src=x onerror=');
    expect(await page.locator('.instruction').first().textContent()).toContain('\\u202eevil\\u001b[31m <script>');
    await expect.poll(() => page.getByText('image not available').count()).toBeGreaterThan(0);
    await page.getByRole('link', { name: 'log' }).click();
    await expect.poll(() => page.locator('.log').textContent()).toContain('\\u202eevil');
    expect(await page.title()).toBe('editrl');
    // The browser notes what it was not given.
    expect(complaints.splice(0).every((text) => text.includes('404'))).toBe(true);
  });

  it('shows an experiment as a grid', async () => {
    await open('#/experiments');
    // By its whole name: where the page before is still there, its runs begin with it.
    await page.getByRole('link', { name: 'grid', exact: true }).click();
    await expect.poll(() => page.locator('table.matrix thead').textContent()).toContain('kl 0kl 1e-4');
    await expect.poll(() => page.locator('.matrix .standing-reference').textContent()).toContain('5.');
    expect(await page.locator('.matrix .standing-worse').count()).toBe(1);
    expect(await page.locator('.legend').first().textContent()).toContain(
      'worse than the best by at least 2 standard errors',
    );
    await page
      .getByRole('link', { name: /seed 2/ })
      .first()
      .click();
    await page.getByRole('heading', { name: /seed-2/ }).waitFor();
  });

  it('asks for the token if it has none or a wrong one, and continues with the right one', async () => {
    await open('', { address: `${at.url}/#token=${'0'.repeat(64)}` });
    await page.getByLabel('token').fill(at.token);
    await page.getByRole('button', { name: 'continue' }).click();
    await row(START).waitFor();
    expect(complaints.splice(0).every((text) => text.includes('401'))).toBe(true);
  });

  it('takes nothing from elsewhere', async () => {
    const asked: string[] = [];
    await open('', { address: 'about:blank' });
    page.on('request', (request) => asked.push(new URL(request.url()).origin));
    await page.goto(at.address);
    await row(START).waitFor();
    expect([...new Set(asked)].filter((origin) => origin !== 'null')).toEqual([at.url]);
  });

  describe.each([
    ['light', false],
    ['dark', true],
  ])('in %s', (_, dark) => {
    it.each([
      ['runs', '#/'],
      ['curves', '#/run/0/made_episodes'],
      ['alarms', '#/run/0/made_alarm'],
      ['episodes', '#/run/0/made_episodes?tab=episodes'],
      ['log', '#/run/0/made_episodes?tab=log'],
      ['settings', '#/run/0/made_episodes?tab=settings'],
      ['experiments', '#/experiments'],
      ['matrix', '#/experiment/0/grid'],
      ['comparison', '#/compare?run=0/grid__kl-0__seed-1&run=0/grid__kl-1e-4__seed-1'],
    ])('%s has no serious fault of accessibility', async (_name, hash) => {
      await open(hash, { dark });
      await page.locator('main table, main .chart, main .episode, main .log').first().waitFor();
      await expect.poll(() => page.locator('[aria-busy=true]').count()).toBe(0);
      await page.evaluate(axe.source);
      const { violations } = await page.evaluate(() => (globalThis as unknown as { axe: typeof axe }).axe.run());
      const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
      expect(serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join('\n')}`)).toEqual([]);
    });
  });

  it.each([
    '#/',
    '#/run/0/made_episodes',
    '#/run/0/made_episodes?tab=episodes',
    '#/experiment/0/grid',
    '#/compare?run=0/grid__kl-0__seed-1&run=0/made_alarm',
  ])('is no wider than a phone: %s', async (hash) => {
    await open(hash, { width: 375, height: 800 });
    await page.locator('main table, main .chart, main .episode').first().waitFor();
    expect(Number(await page.evaluate('document.documentElement.scrollWidth'))).toBeLessThanOrEqual(375);
  });

  it('continues when the dashboard is started again, and says while it is unreachable', async () => {
    const port = new URL(at.url).port;
    const env = { DASHBOARD_TOKEN: 'a-token-for-two-starts' };
    const args = ['dashboard', '--port', '0', '--json', '--token-env', 'DASHBOARD_TOKEN'];
    const first = place.start(args, env);
    lives.push(first);
    await until('it is there', () => first.out().includes('\n'));
    const { url, token } = JSON.parse(first.out()) as Partial<Address>;
    expect(token).toBeUndefined();
    expect(new URL(String(url)).port).not.toBe(port);
    await open('', { address: `${url}/#token=${env.DASHBOARD_TOKEN}` });
    await row(START).waitFor();
    first.kill('SIGTERM');
    expect((await first.ended).code).toBe(0);
    await expect.poll(() => page.getByRole('alert').textContent()).toContain('does not respond');
    const second = place.start(
      args.map((word) => (word === '0' ? new URL(String(url)).port : word)),
      env,
    );
    lives.push(second);
    await until('it is there again', () => second.out().includes('\n'));
    writeRun(place.runs, { name: 'made_meanwhile', state: 'finished', iteration: 1, numIterations: 1, at: Date.now() });
    await expect.poll(() => row('made_meanwhile').count(), { timeout: 20_000 }).toBe(1);
    await expect.poll(() => page.getByRole('alert').count()).toBe(0);
    complaints.splice(0);
  });
});

async function makeRuns(folder: string): Promise<void> {
  writeRun(folder, { name: 'made_failed', state: 'failed', iteration: 3, numIterations: 9, reason: 'exit code 3' });
  for (const [kl, seed, level] of [
    ['0', 1, 3],
    ['0', 2, 4],
    ['1e-4', 1, 5],
    ['1e-4', 2, 6],
  ] as const) {
    writeRun(folder, {
      name: `grid__kl-${kl}__seed-${seed}`,
      state: 'finished',
      iteration: 20,
      numIterations: 20,
      algorithm: { kl_coeff: Number(kl) },
      seed,
      level,
    });
  }
  for (let at = 0; at < 12; at++) {
    const name = `wide__kl-${Math.floor(at / 3)}__seed-${at % 3}`;
    writeRun(folder, { name, state: 'finished', iteration: 5, numIterations: 5 });
  }
  recordGrid(folder, 'grid', { kl: ['0', '1e-4'], seed: ['1', '2'] });
  recordGrid(folder, 'wide', { kl: ['0', '1', '2', '3'], seed: ['0', '1', '2'] });
  const reason = 'held-out reward is flat';
  writeRun(folder, { name: 'made_early', state: 'finished', iteration: 7, numIterations: 9, reason });
  const alarm = { name: 'repeat_rate', from: 12 };
  writeRun(folder, { name: 'made_alarm', state: 'finished', iteration: 20, numIterations: 20, alarm });
  const made = writeRun(folder, { name: 'made_episodes', state: 'finished', iteration: 20, numIterations: 20 });
  for (const iteration of [5, 10, 15, 20]) {
    await writeMadeEpisodes(made, { iteration, prompts: 6, answers: 4, withImages: true });
  }
  const evil = writeRun(folder, {
    name: 'made_hostile',
    state: 'failed',
    iteration: 5,
    numIterations: 9,
    reason: hostile,
    log: hostile,
  });
  await writeMadeEpisodes(evil, { iteration: 5, prompts: 1, answers: 2, withImages: true, instruction: () => hostile });
  rmSync(evil.mediaDir, { recursive: true });
  const torn = writeRun(folder, { name: 'made_torn', state: 'interrupted', iteration: 12, numIterations: 20 });
  const text = readFileSync(torn.metrics, 'utf8').replace('{"iteration":3,', '{"iteration":,');
  writeFileSync(torn.metrics, text);
  truncateSync(torn.metrics, Buffer.byteLength(text) - 20);
  const broken = writeRun(folder, { name: 'broken', state: 'finished', iteration: 1, numIterations: 1 });
  writeFileSync(broken.record, '{"format": 99}');
  writeFileSync(join(folder, 'no_folder'), 'a file');
}
