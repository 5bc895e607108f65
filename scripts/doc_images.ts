/**
 * Writes the images of the README and of the quickstart's page from the quickstart's own run, so that all of them show the same digits:
 *
 *   npm run quickstart && node dist/scripts/doc_images.js
 *
 * Needs Chromium: CHROMIUM_PATH, or one on the PATH.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import '../src/recipes/settings.js';
import { startDashboard } from '../src/web/server.js';

const [RUNS, RUN, TOKEN] = ['runs/tiny', 'sft_s__rl_s', 'token-of-this-script'];
const [WIDTH, HEIGHT] = [1180, 900];

const found = 'command -v chromium-headless-shell || command -v chromium || command -v google-chrome';
const executablePath = process.env['CHROMIUM_PATH'] ?? execFileSync('sh', ['-c', found], { encoding: 'utf8' }).trim();
const dashboard = await startDashboard({
  port: 0,
  token: TOKEN,
  folders: [RUNS],
  program: [process.execPath, 'dist/src/cli/main.js'],
  onDefect: (error) => {
    throw error;
  },
});
await dashboard.read;
const browser = await chromium.launch({ executablePath, args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] });
try {
  const page = await browser.newPage({ viewport: { width: WIDTH, height: HEIGHT }, colorScheme: 'light' });
  await page.goto(`${dashboard.url}/#token=${TOKEN}`);
  await page.getByRole('link', { name: RUN, exact: true }).click();
  await page.locator('.changes img').nth(20).waitFor();
  await page.locator('.chart canvas').first().waitFor();
  await page.screenshot({ path: join('docs', 'dashboard.png') });
  await page.locator('.changes').screenshot({ path: join('docs', 'before_after.png') });
} finally {
  await browser.close();
  await dashboard.close();
}
copyFileSync(join(RUNS, RUN, 'curve.png'), join('docs', 'tutorial', 'quickstart_curve.png'));
