/** A headless Chromium, where this machine has one. */
import { existsSync } from 'node:fs';
import { chromium, type Browser } from 'playwright-core';

/** Where Debian's packages put it. */
const PLACES = ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium'];
const executablePath = PLACES.find((path) => existsSync(path));

/** Why there is none; null where there is one. Raises an error instead where one is required, as in CI. */
export const noBrowser: string | null =
  executablePath === undefined ? `no Chromium: none of ${PLACES.join(', ')} is there` : null;
if (noBrowser !== null && process.env['EDITRL_REQUIRE_BROWSER'] === '1') throw new Error(noBrowser);

export function openBrowser(): Promise<Browser> {
  // Its sandbox is not to be had as root; it sees nothing but this project's own page.
  return chromium.launch({ ...(executablePath === undefined ? {} : { executablePath }), args: ['--no-sandbox'] });
}
