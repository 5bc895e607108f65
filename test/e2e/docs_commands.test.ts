/**
 * Calls every command of the guides that is not marked `# needs …`, in a place with finished runs of the quickstart's chain at a small size. `run`
 * and `sweep` are planned: the tests of the recipes train. Servers are left to their own tests.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { Place, RL, START } from './editrl.js';

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
      .filter((line) => /^(?:APP__\w+=\S+ )?editrl /.test(line) && !line.includes('# needs'))
      .map((line) =>
        line
          .replace(/ +#.*$/, '')
          .replace(/ > \S+$/, '')
          .replace(/^.*?editrl /, ''),
      );
  });
}

/** Words as a shell makes them of a command; iterations that the small runs do not have become their last one. */
function wordsOf(command: string): string[] {
  const words = [...command.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(
    ([, single, double, bare]) => single ?? double ?? bare,
  );
  return words
    .map((word) => word.replace(/@\d+$/, '@last'))
    .flatMap((word) => (/^configs\/.*\*/.test(word) ? matching(word) : [word]));
}

function matching(pattern: string): string[] {
  const name = new RegExp(`^${pattern.replaceAll('.', '\\.').replaceAll('*', '.*')}$`);
  return readdirSync('configs')
    .map((file) => join('configs', file))
    .filter((file) => name.test(file));
}

/** `RUN`, `FOLDER`, `LIST.jsonl`, `IMAGE.png`: a form to fill in. */
const isForm = (words: readonly string[]): boolean =>
  words.some((word) => /^[A-Z_]+(?:\.jsonl|\.png)?(?:@.*)?$/.test(word));

const PLANNED = new Set(['run', 'sweep']);
const DROPPED = new Set(['--failed', '--fresh', '--retries', '1', '--allow-changes']);
/** Runs that exist here: those of the template, and one more. */
const RUNS = [RL, START, 'low_kl', 'branch'];

const commands = pages.flatMap((page) =>
  commandsOf(page).map((command) => ({ page, command, words: wordsOf(command) })),
);
/** Runs and experiments that the documentation trains and this test only plans. */
const planned = commands
  .filter(({ words }) => PLANNED.has(words[0]))
  .map(({ words }) => basename(words[1], '.jsonnet'))
  .filter((name) => !RUNS.includes(name));
const called = commands.filter(
  ({ words }) => !isForm(words) && !SERVERS.includes(words[0]) && !words.some((word) => planned.includes(word)),
);

let place: Place;
beforeAll(async () => {
  place = Place.make(inject('template'));
  const { code, err } = await place.call(['fork', RL, '--as', 'low_kl', '--set', 'num_iterations=8']);
  expect(code, err).toBe(0);
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
      const kept = words.map((word, at) =>
        /^--(?:out|html)$/.test(words[at - 1] ?? '') ? join(place.dir, word) : word,
      );
      const args = PLANNED.has(verb) ? ['plan', ...rest.filter((word) => !DROPPED.has(word))] : kept;
      const { code, err } = await place.call(args, {
        COLUMNS: '400',
        APP__REWARD_FUNCTION_API_BASE: 'http://127.0.0.1:1',
      });
      // A check or a plan on this machine may find missing data, models and programs, with exit code 1, or the smaller runs of the template.
      const found = err.includes('was started with other settings') ? [1, 2] : [1];
      const allowed = ['plan', 'check', 'score'].includes(args[0]) ? [0, ...found] : [0];
      expect(allowed, err).toContain(code);
    },
    240_000,
  );
});
