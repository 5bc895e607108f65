import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';

const ROOMS = readdirSync('src').map((room) => join('src', room, 'README.md'));
const PAGES = [
  ...['README.md', 'CONTRIBUTING.md', 'AGENTS.md', 'SECURITY.md', ...ROOMS],
  ...['docs', 'experiments/results'].flatMap(pagesOf),
];

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

/** Relative links and pictures of a page: what each leads to, from the root, and the anchor behind `#`. */
function linksOf(page: string): { readonly target: string; readonly anchor: string | null }[] {
  const text = readFileSync(page, 'utf8').replace(/```[\s\S]*?```/g, '');
  const found = [...text.matchAll(/\]\(([^)\s]+)\)|src="([^"]+)"/g)].map(([, link, picture]) => link ?? picture);
  return found
    .filter((link) => !/^[a-z]+:/.test(link))
    .map((link) => {
      const [path, anchor = null] = link.split('#');
      return { target: path === '' ? page : join(dirname(page), path), anchor };
    });
}

describe('the documentation', () => {
  it.each(PAGES)('%s links to what is there', (page) => {
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

  it('begins with a page of two screens', () => {
    expect(readFileSync('README.md', 'utf8').split('\n').length).toBeLessThan(150);
  });
});
