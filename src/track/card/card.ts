/** Files beside an exported model: a card for people and for the Hub, and the settings and results for programs. */
import { printable } from '../../core/errors.js';
import { shellQuote } from '../../core/shell.js';
import type { Redact } from '../../http/redact.js';
import { rewardScale } from '../../rewards/score/identity.js';
import { formatChangedSettings } from '../../run/changed_settings.js';
import type { ChangedSetting } from '../../run/record.js';
import { heldOutRows } from '../../run/report/held_out_rows.js';
import { showScale } from '../../run/report/numbers.js';
import type { RunReport } from '../../run/report/read.js';
import { getPath } from '../../schema/paths.js';
import { shownSettings, withoutPassword } from '../shown_settings.js';
import type { CardContent } from './content.js';
import { datasetPaths, frontMatter } from './front_matter.js';
import type { Origin } from './origin.js';
import { usageSection } from './usage.js';

export const RUN_FILE = 'editrl_run.json';

/** The text of README.md. `redact` hides secrets in the command. */
export function modelCard(content: CardContent, redact: Redact): string {
  const { record, report, iteration } = content;
  const { algorithm, task } = record.settings;
  const type = (algorithm as { readonly type?: unknown } | undefined)?.type;
  const how = [`recipe \`${inline(task)}\``, ...(type === undefined ? [] : [`algorithm \`${inline(type)}\``])];
  return [
    '---',
    `${frontMatter(content)}---`,
    '',
    `# ${record.run_name}`,
    '',
    `Iteration ${iteration} of ${report.num_iterations} of a run of editrl: ${how.join(', ')}.`,
    `All its settings are in \`${RUN_FILE}\`.`,
    '',
    ...trainingSection(content, redact),
    '',
    ...resultsSection(report),
    ...usageSection(content),
    '',
  ].join('\n');
}

/** The settings and results for programs. */
export function runFile({ record, report, iteration, format }: CardContent, redact: Redact): string {
  const last = record.attempts.at(-1);
  const content = {
    run_name: record.run_name,
    iteration,
    format,
    hash: record.hash,
    versions: last?.versions ?? {},
    experiment: record.experiment ?? null,
    settings: shownSettings(record.settings, redact),
    changed_settings: report.changed_settings.filter((change) => change.iteration < iteration),
    heldout: report.heldout,
  };
  return `${JSON.stringify(content, null, 2)}\n`;
}

function trainingSection({ record, report, iteration, origin }: CardContent, redact: Redact): string[] {
  const scale = rewardScale((path) => getPath(record.settings, path));
  const judge = getPath(record.settings, 'reward.model');
  const command = record.attempts.at(0)?.command ?? [];
  const lists = (['train', 'validation'] as const).map((split) => datasetPaths(record, split).map(inCode).join(', '));
  return [
    '## Training',
    '',
    `- Started from ${startText(origin)}.`,
    ...(lists[0] === '' ? [] : [`- Trained on ${lists[0]}.`]),
    ...(lists[1] === '' ? [] : [`- Held out: ${lists[1]}.`]),
    ...(scale === null
      ? []
      : [
          `- Reward: ${inline(showScale(scale))}${scale.asksJudge && typeof judge === 'string' ? `; the judge is ${inCode(judge)}` : ''}.`,
        ]),
    ...changedText(report.changed_settings.filter((change) => change.iteration < iteration)),
    `- Licence: ${licenceText(origin)}`,
    ...(command.length === 0
      ? []
      : ['', '```', printable(redact(withoutPassword(['editrl', ...command.map(shellQuote)].join(' ')))), '```']),
  ];
}

function changedText(changes: readonly ChangedSetting[]): string[] {
  if (changes.length === 0) return [];
  return ['- Settings changed on the way:', ...formatChangedSettings(changes).map((line) => `  - ${inCode(line)}`)];
}

function startText({ start, hub }: Origin): string {
  if (start === null) return 'random weights';
  if (typeof start === 'object' && 'hub' in start) return inCode(start.hub);
  const through = hub === null ? '' : `, which goes back to ${inCode(hub)}`;
  return typeof start === 'string'
    ? `${inCode(start)}${hub === start ? '' : through}`
    : `the run ${inCode(start.run)}${through}`;
}

function licenceText({ licence, start }: Origin): string {
  if (licence !== null) {
    const { license, license_name: name } = licence;
    return `${[license].flat().map(inCode).join(', ')}${name === undefined ? '' : ` (${inline(name)})`}, as the model that the run goes back to.`;
  }
  return start === null
    ? 'none is given; set `license` above before you publish the model.'
    : 'none is given, because no card of the model that the run started from states one; set `license` above before you publish the model.';
}

function resultsSection({ heldout }: RunReport): string[] {
  const rows = heldOutRows(heldout);
  if (rows.length === 0) return [];
  const at = (iteration: number | null): string => (iteration === null ? '' : ` (iteration ${iteration})`);
  const { before, after } = heldout.iterations;
  return [
    '## Held-out results',
    '',
    `| | before${at(before)} | last${at(after)} | change |`,
    '| --- | --- | --- | --- |',
    ...rows.map(
      (row) => `| ${inline(row.label)} | ${row.before ?? '–'} | ${row.after ?? '–'} | ${row.change ?? '–'} |`,
    ),
    '',
  ];
}

function inCode(value: string): string {
  return `\`${inline(value)}\``;
}

/** Text within a line of Markdown, escaped so that it formats nothing. */
function inline(value: unknown): string {
  return printable(String(value)).replaceAll(/[`|\n]/g, ' ');
}
