/**
 * The page itself: one document, its style, its modules as the compiler leaves them, and the libraries' files as their packages ship them. All of
 * it comes from this server, and nothing that is no file of this table ever does.
 */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { RunError } from '../core/errors.js';
import type { Reply } from '../http/reply.js';
import type { Route } from '../http/server.js';

/** What browsers are told with every answer: nothing from elsewhere, nothing inline, no frames, no guessing of types. */
export const GUARD_HEADERS: Readonly<Record<string, string>> = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'x-frame-options': 'DENY',
};

/** Modules of packages by the names that the page imports them by. */
const LIBRARIES: Readonly<Record<string, string>> = {
  preact: 'preact/dist/preact.mjs',
  'preact/hooks': 'preact/hooks/dist/hooks.mjs',
  'preact/jsx-runtime': 'preact/jsx-runtime/dist/jsxRuntime.mjs',
  uplot: 'uplot/dist/uPlot.esm.js',
};
const LIBRARY_STYLE = 'uplot/dist/uPlot.min.css';

const TYPES: Readonly<Record<string, string>> = {
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
};

/** Routes for all of it, which answer without the token: the page holds no data. Raises RunError where it was not built. */
export function pageRoutes(): Record<string, Route> {
  const root = projectRoot();
  const compiled = join(root, 'dist', 'src', 'web', 'page');
  if (!existsSync(join(compiled, 'main.js'))) {
    throw new RunError('the page was not built', { where: compiled, next: 'Run: npm run build' });
  }
  const routes: Record<string, Route> = {};
  const serve = (
    path: string,
    type: string,
    body: string | Buffer,
    more: Readonly<Record<string, string>> = {},
  ): void => {
    const headers = { ...GUARD_HEADERS, 'cache-control': 'no-cache', ...more };
    const reply: Reply = { status: 200, type, body, headers };
    routes[path] = { open: true, GET: () => reply };
  };
  const modules = readdirSync(compiled).filter((name) => name.endsWith('.js'));
  for (const name of modules) serve(`/page/${name}`, TYPES['.js'], readFileSync(join(compiled, name)));
  const map: Record<string, string> = {};
  for (const [name, file] of Object.entries(LIBRARIES)) {
    map[name] = `/library/${name.replace('/', '_')}.js`;
    serve(map[name], TYPES['.js'], readFileSync(packageFile(file)));
  }
  serve('/library/uplot.css', TYPES['.css'], readFileSync(packageFile(LIBRARY_STYLE)));
  serve('/page/page.css', TYPES['.css'], readFileSync(join(root, 'src', 'web', 'page', 'page.css')));
  const importMap = JSON.stringify({ imports: map });
  const preloads = [...modules.map((name) => `/page/${name}`), ...Object.values(map)];
  const template = readFileSync(join(root, 'src', 'web', 'page', 'page.html'), 'utf8');
  const document = template
    .replace('<!-- preloads -->', preloads.map((path) => `<link rel="modulepreload" href="${path}" />`).join('\n    '))
    .replace('<!-- imports -->', `<script type="importmap">${importMap}</script>`);
  serve('/', TYPES['.html'], document, { 'content-security-policy': policyFor(importMap) });
  return routes;
}

/** The one inline script is the map of imports, which is allowed by its digest; images of runs are shown from memory (`blob:`). */
function policyFor(importMap: string): string {
  const digest = createHash('sha256').update(importMap).digest('base64');
  return [
    "default-src 'none'",
    `script-src 'self' 'sha256-${digest}'`,
    "style-src 'self'",
    "img-src 'self' blob: data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
  ].join('; ');
}

/** A file of a package, whatever its exports say. */
function packageFile(file: string): string {
  const name = file.slice(0, file.indexOf('/'));
  const entry = createRequire(import.meta.url).resolve.paths(name) ?? [];
  const found = entry.map((folder) => join(folder, file)).find((path) => existsSync(path));
  if (found !== undefined) return found;
  throw new RunError(`a file of the package ${name} is missing`, { where: file, next: 'Run: npm ci' });
}

/** The folder of package.json, from the sources and from dist/ alike. */
function projectRoot(): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    if (existsSync(join(folder, 'package.json'))) return folder;
    if (folder === dirname(folder)) {
      throw new RunError('the folder of this program is not found', { where: folder, next: 'Run: npm ci' });
    }
  }
}
