/** A real browser for pages, where the machine has one. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { chromium, type Browser } from 'playwright-core';

/** Where Chromium lies: `CHROMIUM_PATH`, else on the PATH; null where there is none. */
export const chromiumPath: string | null = findChromium(process.env);

/** Starts it, headless. Containers whose user is root have no sandbox. */
export function openBrowser(): Promise<Browser> {
  if (chromiumPath === null) throw new Error('there is no Chromium on the PATH');
  return chromium.launch({ executablePath: chromiumPath, args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] });
}

function findChromium(env: NodeJS.ProcessEnv): string | null {
  const given = env['CHROMIUM_PATH'];
  const names = ['chromium', 'chromium-browser', 'google-chrome'];
  const places = (env['PATH'] ?? '').split(delimiter).flatMap((folder) => names.map((name) => join(folder, name)));
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
