/** Builds the command line once for all tests that call it as a person would. */
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const ROOT = resolve(import.meta.dirname, '../..');

/** Compiles to dist/. Raises with the compiler's output when that fails. */
export function build(): void {
  const compiler = createRequire(import.meta.url).resolve('typescript/bin/tsc');
  for (const project of ['tsconfig.build.json', 'src/web/page']) {
    const built = spawnSync(process.execPath, [compiler, '-p', project], { cwd: ROOT, encoding: 'utf8' });
    if (built.status !== 0) throw new Error(`the build failed:\n${built.stdout}${built.stderr}`);
  }
}
