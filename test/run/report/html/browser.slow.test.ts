import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { main } from '../../../../src/cli/main.js';
import { loadExperiment } from '../../../../src/config/experiment/load.js';
import { capture } from '../../../cli/run_directory.js';
import { noBrowser, openBrowser } from '../../../support/browser.js';
import { testFolder } from '../../../support/folder.js';
import { finishedRun, withAnswers, withSheets } from '../recorded_runs.js';

const EXPERIMENT = 'experiments/earl_table.jsonnet';
const HOSTILE = `</title></style><script>document.title = 'owned'</script><img src="http://127.0.0.1:9/x" onerror="document.title = 'owned'">`;

// Its reason: what a page asks for and what a person sees of it is known to a browser alone.
describe.skipIf(noBrowser !== null)(
  `a report in a browser${noBrowser === null ? '' : ` (skipped: ${noBrowser})`}`,
  () => {
    let browser: Browser;
    let file: string;
    const asked: string[] = [];

    beforeAll(async () => {
      const base = testFolder('earl-report');
      vi.stubEnv('APP__BASE_EXP_DIR', base);
      vi.stubEnv('APP__DATA_DIR', join(base, 'data'));
      const { cells } = await loadExperiment({ file: EXPERIMENT });
      for (const [i, { config }] of cells.entries()) {
        const paths = finishedRun(config, 4 + (i % 7) / 10);
        await withSheets(paths);
        withAnswers(paths, 40, [HOSTILE, HOSTILE]);
      }
      file = join(base, 'table.html');
      capture();
      expect(await main(['report', EXPERIMENT, '--html', file])).toBe(0);
      vi.restoreAllMocks();
      vi.unstubAllEnvs();
      browser = await openBrowser();
    });
    afterAll(() => browser.close());

    async function open(options: BrowserContextOptions): Promise<Page> {
      const page = await browser.newPage(options);
      page.on('request', (request) => asked.push(request.url()));
      await page.goto(pathToFileURL(file).href);
      return page;
    }

    it('asks nothing of anywhere and runs nothing, whatever answers hold', async () => {
      const page = await open({ viewport: { width: 1280, height: 800 } });
      await page.waitForLoadState('networkidle');
      expect(asked.filter((url) => !url.startsWith('data:'))).toEqual([pathToFileURL(file).href]);
      expect(await page.title()).toBe('earl_table: report');
      expect(await page.locator('script').count()).toBe(0);
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
      expect(first[0]).toContain('Base given by the axis recipe');
      expect(first[1]).toContain('Axes recipe (10) × seed (3)');
      expect(first[2]).toMatch(/^Winner recipe sft_\S+ 3\.000/);
      expect(first[3]).toMatch(
        /^Paired difference ± standard error [+-]\d\.\d{3} ± \d\.\d{3} against the second best, recipe sft_/,
      );
      expect(await page.locator('svg').first().isVisible()).toBe(true);
    });

    it.each([
      ['light', 'screen', [255, 255, 255]],
      ['dark', 'screen', [20, 23, 27]],
      ['dark', 'print', [255, 255, 255]],
    ] as const)('is legible in %s on %s', async (colorScheme, media, ground) => {
      const page = await open({ colorScheme });
      await page.emulateMedia({ media, colorScheme });
      // As strings: the page's own names are unknown here.
      const colours = await page.evaluate<string[]>(
        `[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color, getComputedStyle(document.querySelector('svg text')).fill]`,
      );
      const [back, ...inks] = colours.map((colour) => (colour.match(/\d+/g) ?? []).slice(0, 3).map(Number));
      expect(back).toEqual(ground);
      for (const ink of inks) expect(contrast(ink, back)).toBeGreaterThan(4.5);
    });

    it('fits a narrow screen', async () => {
      const page = await open({ viewport: { width: 360, height: 740 } });
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(360);
    });

    it('prints what is folded away', async () => {
      const page = await open({ viewport: { width: 1280, height: 800 } });
      const row = page.locator('details td').first();
      expect(await row.isVisible()).toBe(false);
      await page.emulateMedia({ media: 'print' });
      expect((await row.boundingBox())?.height ?? 0).toBeGreaterThan(5);
      const pdf = await page.pdf();
      writeFileSync(join(testFolder('earl-print'), 'table.pdf'), pdf);
      expect(pdf.subarray(0, 4).toString()).toBe('%PDF');
    });
  },
);

/** Of two colours as WCAG has it. */
function contrast(a: readonly number[], b: readonly number[]): number {
  const [dark, light] = [a, b]
    .map((colour) =>
      colour
        .map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4))
        .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0),
    )
    .sort((x, y) => x - y);
  return (light + 0.05) / (dark + 0.05);
}
