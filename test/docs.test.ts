import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { keyPaths } from '../scripts/keys_page.js';

const ROOMS = readdirSync('src').map((room) => join('src', room, 'README.md'));
const PAGES = [
  ...['README.md', 'CONTRIBUTING.md', 'AGENTS.md', 'SECURITY.md', ...ROOMS],
  ...['docs', 'experiments/results'].flatMap(pagesOf),
];

const GENERATED = ['docs/reference/keys.md', 'docs/reference/coverage.md', 'docs/reference/cli.md'];
/** Pages that people write for users. */
const USER_PAGES = PAGES.filter(
  (page) => (page === 'README.md' || page.startsWith('docs/')) && !GENERATED.includes(page),
);

/** The pages of a folder and of the folders in it. */
function pagesOf(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => join(folder, name));
}

/** Headings as GitHub names them in addresses. */
function anchorsOf(text: string): string[] {
  return [...text.matchAll(/^#+ (.+)$/gm)].map(([, title]) =>
    title
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-'),
  );
}

/** The targets of relative links and images of a page, from the root, with the anchor behind `#`. */
function linksOf(page: string): { readonly target: string; readonly anchor: string | null }[] {
  const text = readFileSync(page, 'utf8').replace(/```[\s\S]*?```/g, '');
  const found = [...text.matchAll(/\]\(([^)\s]+)\)|src="([^"]+)"/g)].map(([, link, image]) => link ?? image);
  return found
    .filter((link) => !/^[a-z]+:/.test(link))
    .map((link) => {
      const [path, anchor = null] = link.split('#');
      return { target: path === '' ? page : join(dirname(page), path), anchor };
    });
}

describe('the documentation', () => {
  it.each(PAGES)('%s links to pages and headings that exist', (page) => {
    const lost = linksOf(page).filter(
      ({ target, anchor }) =>
        !existsSync(target) || (anchor !== null && !anchorsOf(readFileSync(target, 'utf8')).includes(anchor)),
    );
    expect(lost).toEqual([]);
  });

  it('has every page in its index', () => {
    const listed = linksOf('docs/index.md').map(({ target }) => target);
    const pages = pagesOf('docs').filter((page) => page !== 'docs/index.md' && !page.startsWith('docs/dev/'));
    expect(pages.filter((page) => !listed.includes(page))).toEqual([]);
  });

  it('has a README of at most 120 lines', () => {
    expect(readFileSync('README.md', 'utf8').split('\n').length).toBeLessThan(122);
  });

  it.each(USER_PAGES)('%s names keys and files that exist', (page) => {
    const keys = [...keyPaths()].map((path) => path.replaceAll('[]', ''));
    const sections = [...new Set(keys.map((key) => key.split('.', 1)[0]))];
    const dotted = new RegExp(`^(?:${sections.join('|')})(?:\\.\\w+)+`);
    const code = [
      ...readFileSync(page, 'utf8')
        .replace(/^```[\s\S]*?^```/gm, '')
        .matchAll(/`([^`\n]+)`/g),
    ].map(([, text]) => text);
    const named = code
      .flatMap((text) => dotted.exec(text)?.[0] ?? [])
      .filter((text) => !/\.(?:json|npz|png|log|ts)/.test(text));
    const unknown = named.filter((name) => {
      const pattern = new RegExp(`^${name.replaceAll(/\.\d+/g, '').replaceAll('.', '\\.(?:\\*\\.)?')}$`);
      return !keys.some((key) => pattern.test(key) || key.startsWith(`${name}.`));
    });
    const files = code.filter((text) => /^(?:configs|experiments|scripts|src|test|docs)\/[\w./-]+$/.test(text));
    expect([...unknown, ...files.filter((file) => !existsSync(file))]).toEqual([]);
  });

  it('is where source and scripts say it is', () => {
    const sources = ['src', 'scripts', 'test', 'configs', 'experiments'].flatMap((folder) =>
      readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((name) => join(folder, name)),
    );
    const lost = sources
      .filter((file) => statSync(file).isFile() && /(?:\.(?:ts|jsonnet|libsonnet|py|sh)|\/\w+)$/.test(file))
      .flatMap((file) =>
        [...readFileSync(file, 'utf8').matchAll(/\bdocs\/[\w/]+\.md\b/g)].map(([path]) => ({ file, path })),
      )
      .filter(({ path }) => !existsSync(path));
    expect(lost).toEqual([]);
  });
});
