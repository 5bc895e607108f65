import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import yargs from 'yargs';
import { verbs } from '../../src/cli/main.js';
import { changesOf } from '../../src/cli/shared/verb.js';
import { loadExperiment } from '../../src/config/experiment/load.js';
import { loadConfig } from '../../src/config/load.js';

const filesIn = (folder: string, ending: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(ending))
    .map((name) => join(folder, name));

/** All but the page that help itself writes, whose examples are found in the source. */
const PAGES = ['README.md', ...filesIn('docs', '.md'), ...filesIn('experiments/results', '.md')].filter(
  (page) => page !== 'docs/reference/cli.md',
);

/** Words of a shell line, up to a comment, a pipe, a redirection or the next command. */
function wordsOf(line: string): string[] {
  const words: string[] = [];
  for (const [text, single, double] of line.matchAll(/'([^']*)'|"([^"]*)"|[^\s'"]+|\s+/g)) {
    if (/^(#|\||>|&|;|2>|<)/.test(text) && words.at(-1) === '') break;
    if (/^\s/.test(text)) words.push('');
    else words.push((words.pop() ?? '') + (single ?? double ?? text));
  }
  return words.filter((word) => word !== '');
}

/** The commands of a page, in blocks and with arguments in lines, and of examples in help. */
function commandsOf(file: string): string[] {
  const text = readFileSync(file, 'utf8');
  if (file.endsWith('.ts')) {
    return [...text.matchAll(/(['"`])\$0 ([^\n]*?)\1,/g)].map(([, , command]) => command);
  }
  const blocks = [...text.matchAll(/^```\w*\n([\s\S]*?)^```/gm)].flatMap(([, block]) =>
    block.replaceAll(/\\\n\s*/g, ' ').split('\n'),
  );
  const inline = [...text.replaceAll(/^```[\s\S]*?^```/gm, '').matchAll(/`([^`\n]+)`/g)].map(([, code]) => code);
  const lines = [...blocks, ...inline.filter((code) => / \S*[./=]/.test(code))];
  return lines.flatMap((line) => /(?:^|&& |^(?:[A-Z_]+=\S* )+)editrl (.+)$/.exec(line.trim())?.[1] ?? []);
}

/** Whether it is a form, such as `editrl run …` or `report RUN`, and not a command to type. */
const isForm = (words: readonly string[]): boolean =>
  words.length < 2 || words.some((word) => /…|\.\.\.|^[A-Z][A-Z_]*$|\[|^<|@[A-Z]+$|=[A-Z]+$/.test(word));

/** Parses a command as the program does; returns what is wrong with it, and its arguments. */
async function parsed(words: readonly string[]): Promise<{ wrong: string | null; args: Record<string, unknown> }> {
  const [name, second] = words;
  const verb = [`${name} ${second}`, name].find((one) => Object.hasOwn(verbs, one));
  if (verb === undefined) return { wrong: `no verb '${name} ${second}'`, args: {} };
  const action = await verbs[verb].load();
  const isAction = verb !== name;
  let wrong: string | null = null;
  const args = await yargs(words.slice(isAction ? 1 : 0))
    .command(`${isAction ? second : name} ${action.positionals}`.trim(), '', action.build, () => undefined)
    .option('debug', { type: 'boolean' })
    .parserConfiguration({
      'duplicate-arguments-array': true,
      'camel-case-expansion': false,
      'parse-positional-numbers': false,
    })
    .strict()
    .exitProcess(false)
    .fail((message, error) => {
      wrong = message ?? String(error);
    })
    .parseAsync();
  return { wrong, args };
}

const found = [...PAGES, ...filesIn('src/cli', '.ts')].flatMap((file) =>
  commandsOf(file).map((command) => ({ file, command, words: wordsOf(command) })),
);
const commands = found.filter(({ words }) => !isForm(words) && !words.includes('--help'));

describe('documented commands', () => {
  it('are found', () => {
    expect(commands.length).toBeGreaterThan(100);
  });

  it('have verbs, flags and files that exist', async () => {
    const problems: string[] = [];
    for (const { file, command, words } of commands) {
      const { wrong } = await parsed(words);
      if (wrong !== null) problems.push(`${file}: ${command}: ${wrong}`);
      const lost = words.filter((word) => /^(configs|experiments|scripts)\/[\w./-]+$/.test(word) && !existsSync(word));
      for (const path of lost) problems.push(`${file}: ${command}: no ${path}`);
    }
    expect(problems).toEqual([]);
  });

  it('have configs that load', async () => {
    const problems: string[] = [];
    const seen = new Set<string>();
    for (const { file, command, words } of commands) {
      const config = words.find((word) => /^(configs|experiments)\/[\w/]+\.jsonnet$/.test(word));
      if (words.some((word) => /^[\w-]+\.libsonnet$/.test(word))) continue;
      if (config === undefined || !['run', 'sweep', 'plan', 'check', 'config'].includes(words[0])) continue;
      const { args } = await parsed(words);
      const { overlays, sets } = changesOf({ with: args['with'], set: args['set'] });
      const load = config.startsWith('configs/') ? loadConfig : loadExperiment;
      const key = JSON.stringify([config, overlays, sets]);
      if (seen.has(key)) continue;
      seen.add(key);
      try {
        await load({
          file: config,
          overlays,
          sets,
          env: { APP__REWARD_FUNCTION_API_BASE: 'http://127.0.0.1:1', APP__SEED: '1' },
        });
      } catch (error) {
        problems.push(`${file}: ${command}: ${String(error)}`);
      }
    }
    expect(problems).toEqual([]);
  }, 120_000);
});
