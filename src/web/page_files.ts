/**
 * The page: one document, one style sheet and one script, which `npm run build` bundles (scripts/bundle_page.ts). The server serves no other files.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { RunError } from '../core/errors.js';
import { projectRoot } from '../core/files.js';
import type { Route } from '../core/http/server.js';

/** Headers of every response. They forbid other origins, inline code, frames, and content type sniffing. */
export const GUARD_HEADERS: Readonly<Record<string, string>> = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'x-frame-options': 'DENY',
};

/** The page shows images of runs from memory (`blob:`). */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' blob: data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join('; ');

/** Routes for these files. They need no token because they contain no data. Raises RunError if the page was not built. */
export function pageRoutes(): Record<string, Route> {
  const route = (kind: string, body: string, more: Readonly<Record<string, string>> = {}): Route => {
    const headers = { ...GUARD_HEADERS, 'cache-control': 'no-cache', ...more };
    return { open: true, GET: () => ({ status: 200, type: `text/${kind}; charset=utf-8`, body, headers }) };
  };
  const document = readFileSync(join(projectRoot(), 'src', 'web', 'page', 'page.html'), 'utf8');
  return {
    '/': route('html', document, { 'content-security-policy': CONTENT_SECURITY_POLICY }),
    '/page/page.css': route('css', builtFile('page.css')),
    '/page/main.js': route('javascript', builtFile('main.js')),
  };
}

/** Reads a bundled file. Raises RunError if the page was not built. */
export function builtFile(name: string): string {
  const path = join(projectRoot(), 'dist', 'page', name);
  if (!existsSync(path)) {
    throw new RunError('The dashboard page was not built', { where: path, next: 'Run: npm run build' });
  }
  return readFileSync(path, 'utf8');
}
