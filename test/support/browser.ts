/** A headless Chromium, where this machine has one. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { chromium, type Browser } from 'playwright-core';

const NAMES = ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome'];

/** Where Chromium lies: `CHROMIUM_PATH`, else on the PATH; null where there is none. */
export const chromiumPath: string | null = findChromium(process.env);

/** Why there is none; null where there is one. Raises an error instead where one is required, as in CI. */
export const noBrowser: string | null =
  chromiumPath === null ? `no Chromium: none of ${NAMES.join(', ')} is on the PATH` : null;
if (noBrowser !== null && process.env['EDITRL_REQUIRE_BROWSER'] === '1') throw new Error(noBrowser);

/** Starts it. Containers whose user is root have no sandbox; it sees nothing but this project's own pages. */
export function openBrowser(): Promise<Browser> {
  if (chromiumPath === null) throw new Error(noBrowser ?? '');
  return chromium.launch({ executablePath: chromiumPath, args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] });
}

function findChromium(env: NodeJS.ProcessEnv): string | null {
  const given = env['CHROMIUM_PATH'];
  const places = (env['PATH'] ?? '').split(delimiter).flatMap((folder) => NAMES.map((name) => join(folder, name)));
  return (given === undefined ? places : [given]).find(isProgram) ?? null;
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
