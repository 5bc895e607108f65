import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import axe from 'axe-core';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { bundlePage } from '../../../scripts/bundle_page.js';
import { main } from '../../../src/cli/main.js';
import { loadExperiment } from '../../../src/config/experiment/load.js';
import { capture } from '../../cli/run_directory.js';
import { noBrowser, openBrowser } from '../../support/browser.js';
import { testFolder } from '../../support/folder.js';
import { finishedRun, withAnswers, withSheets } from '../../run/report/recorded_runs.js';

const EXPERIMENT = 'experiments/earl_table.jsonnet';
const HOSTILE = `</title></style><script>document.title = 'owned'</script><img src="http://127.0.0.1:9/x" onerror="document.title = 'owned'">`;

// Its reason: what a page asks for and what a person sees of it is known to a browser alone.
describe.skipIf(noBrowser !== null)(
  `a report in a browser${noBrowser === null ? '' : ` (skipped: ${noBrowser})`}`,
  () => {
    let browser: Browser;
    let file: string;
    /** Of four of its runs side by side. */
    let comparison: string;
    const asked: string[] = [];

    /** What a page complained of: of what its policy refuses, too. */
    const complaints: string[] = [];

    beforeAll(async () => {
      await bundlePage();
      const base = testFolder('earl-report');
      vi.stubEnv('APP__BASE_EXP_DIR', base);
      vi.stubEnv('APP__DATA_DIR', join(base, 'data'));
      const { cells } = await loadExperiment({ file: EXPERIMENT });
      const sideBySide = cells.slice(0, 12).filter((_, i) => i % 3 === 0);
      for (const [i, { config }] of cells.entries()) {
        const paths = finishedRun(config, 4 + (i % 7) / 10);
        await withSheets(paths);
        withAnswers(paths, 40, [HOSTILE, HOSTILE]);
      }
      file = join(base, 'table.html');
      capture();
      expect(await main(['report', EXPERIMENT, '--html', file])).toBe(0);
      comparison = join(base, 'comparison.html');
      const names = sideBySide.map(({ config }) => config.settings.run_name);
      expect(await main(['compare', ...names, '--html', comparison])).toBe(0);
      vi.restoreAllMocks();
      vi.unstubAllEnvs();
      browser = await openBrowser();
    });
    afterAll(() => browser.close());

    async function open(options: BrowserContextOptions, path = file): Promise<Page> {
      const page = await browser.newPage(options);
      page.on('request', (request) => asked.push(request.url()));
      page.on('pageerror', (error) => complaints.push(String(error)));
      page.on('console', (message) => {
        if (message.type() === 'error') complaints.push(message.text());
      });
      await page.goto(pathToFileURL(path).href);
      await page.locator('.chart canvas').first().waitFor();
      return page;
    }

    it('asks nothing of anywhere and runs nothing but its own script, whatever answers hold', async () => {
      const page = await open({ viewport: { width: 1280, height: 800 } });
      await page.waitForLoadState('networkidle');
      expect(asked.filter((url) => !url.startsWith('data:'))).toEqual([pathToFileURL(file).href]);
      expect(await page.title()).toBe('earl_table: report');
      expect(await page.locator('script').count()).toBe(2);
      expect(complaints).toEqual([]);
      expect(await page.getByText('document.title').count()).toBeGreaterThan(0);
      const broken = await page
        .locator('img')
        .evaluateAll(
          (all) => all.filter((one) => (one as unknown as { naturalWidth: number }).naturalWidth === 0).length,
        );
      expect(broken).toBe(0);
    });

    it('names base, axes, winner, paired difference and standard error on its first screen', async () => {
      const page = await open({ viewport: { width: 1280, height: 800 } });
      const facts = page.locator('.facts > div');
      const first: string[] = [];
      for (const fact of await facts.all()) {
        const box = await fact.boundingBox();
        expect((box?.y ?? Infinity) + (box?.height ?? 0)).toBeLessThan(800);
        first.push((await fact.innerText()).replace(/\s+/g, ' '));
      }
      expect(first[0]).toContain('Base set by the axis recipe');
      expect(first[1]).toContain('Axes recipe (10) × seed (3)');
      expect(first[2]).toMatch(/^Winner recipe sft_\S+ 3\.000/);
      expect(first[3]).toMatch(
        /^Paired difference ± standard error [+-]\d\.\d{3} ± \d\.\d{3} against the second best, recipe sft_/,
      );
      expect(await page.locator('.chart').first().isVisible()).toBe(true);
    });

    it.each([
      ['light', 'screen', [246, 247, 249]],
      ['dark', 'screen', [18, 21, 28]],
      ['dark', 'print', [255, 255, 255]],
    ] as const)('is legible in %s on %s', async (colorScheme, media, ground) => {
      const page = await open({ colorScheme });
      await page.emulateMedia({ media, colorScheme });
      // As strings: the page's own names are unknown here.
      const [back, ink] = (
        await page.evaluate<string[]>(
          `(({ backgroundColor, color }) => [backgroundColor, color])(getComputedStyle(document.documentElement))`,
        )
      ).map((color) => (color.match(/\d+/g) ?? []).slice(0, 3).map(Number));
      expect(back).toEqual(ground);
      expect(contrast(ink, back)).toBeGreaterThan(4.5);
    });

    it.each([
      ['light', 'report'],
      ['dark', 'report'],
      ['light', 'comparison'],
      ['dark', 'comparison'],
    ] as const)('has no serious fault of accessibility in %s: %s', async (colorScheme, which) => {
      const page = await open({ colorScheme, viewport: { width: 390, height: 844 } }, pathOf(which));
      await page.evaluate(axe.source);
      const { violations } = await page.evaluate(() => (globalThis as unknown as { axe: typeof axe }).axe.run());
      const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
      expect(serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join('\n')}`)).toEqual([]);
    });

    const pathOf = (which: 'report' | 'comparison'): string => (which === 'report' ? file : comparison);

    it.each([390, 1024, 1440].flatMap((width) => [[width, 'report'] as const, [width, 'comparison'] as const]))(
      'breaks no short word at %s pixels: %s',
      async (width, which) => {
        const page = await open({ viewport: { width, height: 844 } }, pathOf(which));
        const { words, broken } = await page.evaluate<{ words: number; broken: string[] }>(BROKEN_WORDS);
        expect(broken).toEqual([]);
        expect(words).toBeGreaterThan(200);
      },
    );

    it.each(['report', 'comparison'] as const)('cuts no column on a phone: %s', async (which) => {
      const page = await open({ viewport: { width: 390, height: 844 } }, pathOf(which));
      const cut = await page.evaluate<
        string[]
      >(`[...document.querySelectorAll('details')].map((one) => (one.open = true)) &&
        [...document.querySelectorAll('.scroll')]
          .filter((one) => one.scrollWidth > one.clientWidth)
          .map((one) => one.getAttribute('aria-label') + ': ' + one.scrollWidth)`);
      expect(cut).toEqual([]);
    });

    it.each([360, 390])('fits a screen of %s pixels', async (width) => {
      const page = await open({ viewport: { width, height: 740 } });
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width);
    });

    it('shows other metrics and iterations as the dashboard does, with the keyboard alone', async () => {
      const page = await open({ viewport: { width: 1280, height: 800 } });
      const charts = page.locator('.charts .chart .plot');
      const all = await charts.count();
      await page.getByLabel('metrics').focus();
      await page.keyboard.type('grad_norm');
      await expect.poll(() => charts.count()).toBe(1);
      expect(all).toBeGreaterThan(5);
      await page.getByLabel('from iteration').fill('10');
      await page.keyboard.press('Tab');
      await expect.poll(() => charts.first().getAttribute('aria-label')).toContain('at iteration 10,');
      await page.getByRole('button', { name: 'all iterations' }).last().press('Enter');
      await expect.poll(() => charts.first().getAttribute('aria-label')).toContain('at iteration 1,');
    });
  },
);

/**
 * The words of at most 20 letters that tables and facts have: how many, and which of them stand on more than one line or leave their cell. Folded
 * tables are unfolded.
 */
const BROKEN_WORDS = `(() => {
  for (const one of document.querySelectorAll('details')) one.open = true;
  const broken = [];
  let words = 0;
  for (const cell of document.querySelectorAll('td, th, dt, dd')) {
    // Titles that the lines of a card repeat are there for screen readers alone.
    if (getComputedStyle(cell.parentElement.parentElement).position === 'absolute') continue;
    const edge = cell.getBoundingClientRect().right + 0.5;
    const range = document.createRange();
    const pieces = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    const letters = [];
    let before = null;
    while (pieces.nextNode()) {
      const { data, parentElement } = pieces.currentNode;
      const said = parentElement.closest('.said, td, th, dt, dd');
      // A text of its own below another one.
      if (said !== before) letters.push([null, 0]);
      before = said;
      for (let at = 0; at < data.length; at++) letters.push([pieces.currentNode, at]);
    }
    const text = letters.map(([node, at]) => node?.data[at] ?? ' ').join('');
    for (const { 0: word, index } of text.matchAll(/\\S+/g)) {
      if (word.length > 20) continue;
      const [[first, from], [last, to]] = [letters[index], letters[index + word.length - 1]];
      range.setStart(first, from);
      range.setEnd(last, to + 1);
      const boxes = [...range.getClientRects()].filter(({ width }) => width > 0);
      if (boxes.length === 0) continue;
      words++;
      const lines = new Set(boxes.map(({ bottom }) => Math.round(bottom)));
      if (lines.size > 1 || boxes.some(({ right }) => right > edge)) broken.push(word + ' in ' + text.slice(0, 80));
    }
  }
  return { words, broken };
})()`;

/** Contrast ratio of two colors as WCAG defines it. */
function contrast(a: readonly number[], b: readonly number[]): number {
  const [dark, light] = [a, b]
    .map((color) =>
      color
        .map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4))
        .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0),
    )
    .sort((x, y) => x - y);
  return (light + 0.05) / (dark + 0.05);
}
