/** Builds the command line once for all tests that call it as a person would. */
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const ROOT = resolve(import.meta.dirname, '../..');

/** Compiles to dist/ and bundles the page, as `npm run build` does. Raises with the output of a step that fails. */
export function build(): void {
  const compiler = createRequire(import.meta.url).resolve('typescript/bin/tsc');
  const steps = [
    [compiler, '-p', 'tsconfig.build.json'],
    [compiler, '-p', 'src/web/page'],
    [resolve(ROOT, 'dist/scripts/bundle_page.js')],
    [resolve(ROOT, 'dist/scripts/copy_library.js')],
  ];
  for (const step of steps) {
    const built = spawnSync(process.execPath, step, { cwd: ROOT, encoding: 'utf8' });
    if (built.status !== 0) throw new Error(`the build failed:\n${built.stdout}${built.stderr}`);
  }
}
