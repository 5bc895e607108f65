/** `editrl config explain KEY`: shows a key's meaning, allowed values and default, and its value in a config. */
import { explain, type Explanation } from '../config/explain.js';
import { originsOf } from '../config/load.js';
import { wrap } from '../core/terminal.js';
import { listSettings } from '../config/validate.js';
import { allRecipes } from '../config/recipes.js';
import { formatTable, outputWidth, printJson, printLine, printWarnings, styled } from './output.js';
import { configOf, flag, overlayOption, setOption, text, type Action, type Arguments } from './verb.js';

export const explainAction: Action & { readonly summary: string } = {
  summary: 'say what a key, or each key of a section, means: its type, its default, and what a config sets it to',
  positionals: '<key> [config]',
  build: (yargs) =>
    yargs
      .positional('key', {
        type: 'string',
        demandOption: true,
        describe: 'a key such as algorithm.kl_coeff, or a section',
      })
      .positional('config', { type: 'string', default: '', describe: 'also say what this config has, and what set it' })
      .option('with', overlayOption)
      .option('set', setOption)
      .option('json', { type: 'boolean', default: false, describe: 'print one JSON document, for machines' })
      .example('$0 config explain kl_coeff', 'a key, also without its section')
      .example('$0 config explain rollout configs/sft_s__rl_s.jsonnet', 'a section, and what a config sets in it'),
  run: async (args) => {
    const found = explain(text(args, 'key'));
    const values = text(args, 'config') === '' ? [] : await valuesOf(args, found[0].key);
    if (flag(args, 'json')) {
      printJson({ explanations: found, ...(text(args, 'config') === '' ? {} : { values }) });
      return 0;
    }
    found.forEach((one, index) => printExplanation(one, index > 0));
    for (const { key, value, set_by } of values) printLine(`\n${key} = ${JSON.stringify(value)}\n  set by: ${set_by}`);
    if (text(args, 'config') !== '' && values.length === 0) printLine(`\n${text(args, 'config')} has no such key.`);
    return 0;
  },
};

interface Value {
  readonly key: string;
  readonly value: unknown;
  readonly set_by: string;
}

/** The values of a config at a key and below it. */
async function valuesOf(args: Arguments, key: string): Promise<readonly Value[]> {
  const config = await configOf(args);
  printWarnings(config.warnings);
  const pattern = new RegExp(`^${key.split('[]').map(escaped).join('\\.\\d+')}(?:\\.|$)`);
  const settings = listSettings(config.settings).filter((setting) => pattern.test(setting.key));
  const origins = await originsOf(
    config,
    settings.map((setting) => setting.key),
  );
  return settings.map((setting, index) => ({ key: setting.key, value: setting.value, set_by: origins[index] }));
}

function escaped(part: string): string {
  return part.replaceAll('.', '\\.');
}

const EFFECTS = {
  result: 'result: it decides what is learned, and a resumed run refuses to change it',
  operation: 'operation: it may change at any resume',
} as const;

function printExplanation(
  { key, meaning, type, effect, recipes, where, below, ...rest }: Explanation,
  again: boolean,
): void {
  const everywhere = recipes.length === allRecipes().length;
  if (again) printLine();
  printLine(`${styled(key, 'bold')}${where === '' ? '' : ` (${where})`}`);
  if (meaning !== '') printLine(indented(meaning));
  if (below.length > 0) {
    const rows = below.map((child) => [child, meaningOf(child)]);
    printLine(formatTable([{ title: 'key' }, { title: 'meaning', wraps: true }], rows));
  } else {
    printLine(indented(`type: ${type}`));
    printLine(indented(`default: ${rest.default ?? 'none; it has to be given'}`));
  }
  if (effect !== null) printLine(indented(EFFECTS[effect]));
  if (!everywhere) printLine(indented(`recipes: ${recipes.join(', ')}`));
}

/** The meaning of a section's key; the first one if recipes or variants differ. */
function meaningOf(key: string): string {
  const [first, ...others] = new Set(explain(key).map(({ meaning }) => meaning));
  return others.length === 0 ? first : `${first} (One of ${others.length + 1} meanings: config explain ${key}.)`;
}

function indented(line: string): string {
  return wrap(line, Math.max(20, outputWidth() - 2))
    .map((part) => `  ${part}`)
    .join('\n');
}
