/** The page docs/reference/cli.md: every verb with its help. */
import { main, verbs } from '../src/cli/main.js';

const WIDTH = '100';

/** The help of a verb. */
async function helpOf(verb: string): Promise<string> {
  const before = process.env['COLUMNS'];
  process.env['COLUMNS'] = WIDTH;
  let help = '';
  await main([...verb.split(' '), '--help'], (text) => (help = text));
  if (before === undefined) delete process.env['COLUMNS'];
  else process.env['COLUMNS'] = before;
  return help;
}

/** The page, from the verbs that help lists. */
export async function cliPage(): Promise<string> {
  const lines = [
    '# Command line',
    '',
    'The program generates this page (`npm run build && node dist/scripts/cli.js`). `editrl --help` lists the verbs, and `editrl VERB --help` prints the same text as here.',
    '',
  ];
  for (const [verb, { summary, hidden }] of Object.entries(verbs)) {
    if (hidden === true) continue;
    lines.push(`## ${verb}`, '', `${summary}.`, '', '```text', (await helpOf(verb)).trimEnd(), '```', '');
  }
  return lines.join('\n');
}
