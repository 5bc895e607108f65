/**
 * Bundles the code for browsers into dist/page: one script for the dashboard, one for reports, and their style. A report is a single file that is
 * opened from disk, where a browser loads no modules. The dashboard's page is served from the same bundle.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'rolldown';

/** The scripts, by the name of their entry in src/web/page. */
const ENTRIES = ['main', 'report'];
const STYLES = ['node_modules/uplot/dist/uPlot.min.css', 'src/web/page/page.css'];

/** Writes the bundle. Raises with the bundler's message if a module is missing or has invalid syntax. The compiler checks types, not this. */
export async function bundlePage(root = process.cwd()): Promise<void> {
  const page = join(root, 'src', 'web', 'page');
  const out = join(root, 'dist', 'page');
  mkdirSync(out, { recursive: true });
  for (const entry of ENTRIES) {
    await build({
      input: join(page, `${entry}.tsx`),
      tsconfig: join(page, 'tsconfig.json'),
      output: { file: join(out, `${entry}.js`), format: 'iife', minify: true },
    });
  }
  const style = STYLES.map((file) => readFileSync(join(root, file), 'utf8')).join('\n');
  writeFileSync(join(out, 'page.css'), style.replace(/\/\*[^]*?\*\//g, '').replace(/\s+/g, ' '));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await bundlePage();
