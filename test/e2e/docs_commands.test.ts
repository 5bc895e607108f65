/**
 * Calls every command of the guides that is not marked `# needs …`, in a place with finished runs of the quickstart's chain at a small size. `run`
 * and `sweep` are planned: the tests of the recipes train. Servers are left to their own tests.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { Place } from './editrl.js';

/** A test of its own follows this page to the letter. */
const FOLLOWED = 'docs/tutorial/your-images.md';
/** These go on until somebody stops them. */
const SERVERS = ['dashboard', 'serve'];

const pages = readdirSync('docs', { recursive: true, encoding: 'utf8' })
  .map((name) => join('docs', name))
  .filter((page) => page.endsWith('.md') && page !== FOLLOWED && !page.startsWith('docs/dev'));

/** The commands of the shell blocks of a page that need nothing but this machine. */
function commandsOf(page: string): string[] {
  return [...readFileSync(page, 'utf8').matchAll(/^```sh\n([\s\S]*?)^```/gm)].flatMap(([, block]) => {
    const lines = block.replaceAll(/\\\n\s*/g, ' ').split('\n');
    // A mark on a line of its own is about all lines after it.
    const from = lines.findIndex((line) => line.startsWith('# needs'));
    return lines
      .slice(0, from === -1 ? undefined : from)
      .filter((line) => line.startsWith('editrl ') && !line.includes('# needs'))
      .map((line) =>
        line
          .replace(/ +#.*$/, '')
          .replace(/ > \S+$/, '')
          .slice('editrl '.length),
      );
  });
}

const wordsOf = (command: string): string[] =>
  [...command.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(([, single, double, bare]) => single ?? double ?? bare);

/** `RUN`, `FOLDER`, `LIST.jsonl`: a form to fill in. */
const isForm = (words: readonly string[]): boolean => words.some((word) => /^[A-Z_]+(?:\.jsonl)?(?:@.*)?$/.test(word));

const PLANNED = new Set(['run', 'sweep']);
const DROPPED = new Set(['--failed', '--fresh', '--retries', '1', '--allow-changes']);

const commands = pages.flatMap((page) =>
  commandsOf(page).map((command) => ({ page, command, words: wordsOf(command) })),
);
const called = commands.filter(({ words }) => !isForm(words) && !SERVERS.includes(words[0]));

let place: Place;
beforeAll(() => {
  place = Place.make(inject('template'));
});
afterAll(() => place.remove());

describe('commands of the documentation', () => {
  it('are found', () => {
    expect(called.length).toBeGreaterThan(40);
  });

  it.each(called.map(({ page, command, words }) => [page, command, words] as const))(
    '%s: editrl %s',
    async (_page, _command, words) => {
      const [verb, ...rest] = words;
      const args = PLANNED.has(verb) ? ['plan', ...rest.filter((word) => !DROPPED.has(word))] : words;
      const { code, err } = await place.call(args, { COLUMNS: '400' });
      // A check or a plan on this machine may find missing data, models and programs, with exit code 1.
      const allowed = ['plan', 'check', 'score'].includes(args[0]) ? [0, 1] : [0];
      expect(allowed, err).toContain(code);
    },
    240_000,
  );
});
