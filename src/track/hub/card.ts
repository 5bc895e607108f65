/** Files published beside a model: a card for people, and the settings and results for programs. */
import { shownSettings } from '../shown_settings.js';
import { printable } from '../../core/errors.js';
import type { RunRecord } from '../../run/record.js';
import type { Estimate } from '../../core/estimate.js';
import type { BeforeAfter, RunReport } from '../../run/report/read.js';

/** How to load the model's files: as a peft adapter, as a transformers model, or only with this program. */
export type PublishedFormat = 'adapter' | 'merged' | 'checkpoint';

export interface CardContent {
  readonly record: RunRecord;
  readonly report: RunReport;
  readonly iteration: number;
  readonly format: PublishedFormat;
  /** The Hub's model that an adapter is based on, or that a run began with; null if it is not from the Hub. */
  readonly base: string | null;
  readonly repository: string;
  /** The branch it is published on; null for main. */
  readonly revision: string | null;
}

export const RUN_FILE = 'editrl_run.json';

const LIBRARIES: Readonly<Record<PublishedFormat, string | null>> = {
  adapter: 'peft',
  merged: 'transformers',
  checkpoint: null,
};

/** The README.md of a repository of models. */
export function modelCard(content: CardContent): string {
  const { record, report, iteration, format, base } = content;
  const library = LIBRARIES[format];
  const head = [
    '---',
    ...(library === null ? [] : [`library_name: ${library}`]),
    ...(base === null ? [] : [`base_model: ${JSON.stringify(base)}`]),
    ...(base !== null && format === 'adapter' ? ['base_model_relation: adapter'] : []),
    'tags:',
    '  - editrl',
    '  - reinforcement-learning',
    '---',
  ];
  const { algorithm } = record.settings;
  const type = (algorithm as { readonly type?: unknown } | undefined)?.type;
  const how = [
    `recipe \`${inline(record.settings['task'])}\``,
    ...(type === undefined ? [] : [`algorithm \`${inline(type)}\``]),
  ];
  const from = base === null ? '' : `, from \`${inline(base)}\``;
  return [
    ...head,
    '',
    `# ${record.run_name}`,
    '',
    `Iteration ${iteration} of ${report.num_iterations} of a run of editrl: ${how.join(', ')}${from}.`,
    `All its settings are in \`${RUN_FILE}\`.`,
    ...results(report),
    ...usage(content),
    '',
  ].join('\n');
}

/** The settings and results for programs. */
export function runFile({ record, report, iteration, format }: CardContent): string {
  const last = record.attempts.at(-1);
  const content = {
    run_name: record.run_name,
    iteration,
    format,
    hash: record.hash,
    versions: last?.versions ?? {},
    experiment: record.experiment ?? null,
    settings: shownSettings(record.settings),
    heldout: report.heldout,
  };
  return `${JSON.stringify(content, null, 2)}\n`;
}

function results({ heldout }: RunReport): string[] {
  const rows: string[] = [];
  const add = (label: string, { before, after }: BeforeAfter<Estimate>): void => {
    if (before !== null || after !== null) rows.push(`| ${label} | ${shown(before)} | ${shown(after)} |`);
  };
  add('reward, sampled', heldout.sampled);
  add('reward, greedy', heldout.greedy);
  for (const { name, sampled, greedy } of heldout.measures) {
    add(`measure ${inline(name)}, sampled`, sampled);
    add(`measure ${inline(name)}, greedy`, greedy);
  }
  for (const [set, values] of Object.entries(heldout.sets)) {
    add(`${inline(set)}, sampled`, values.sampled);
    add(`${inline(set)}, greedy`, values.greedy);
  }
  const loss = (value: number | null): Estimate | null => (value === null ? null : { mean: value, stderr: null });
  add('loss', { before: loss(heldout.loss.before), after: loss(heldout.loss.after) });
  if (rows.length === 0) return [];
  const at = (iteration: number | null): string => (iteration === null ? '' : ` (iteration ${iteration})`);
  const { before, after } = heldout.iterations;
  return [
    '',
    '## Held-out results',
    '',
    `| | before${at(before)} | last${at(after)} |`,
    '| --- | --- | --- |',
    ...rows,
  ];
}

function usage({ format, base, repository, revision }: CardContent): string[] {
  const here = JSON.stringify(repository) + (revision === null ? '' : `, revision=${JSON.stringify(revision)}`);
  const lines: Readonly<Record<PublishedFormat, readonly string[]>> = {
    adapter: [
      'from peft import PeftModel',
      'from transformers import AutoModelForCausalLM, AutoTokenizer',
      '',
      `model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(${JSON.stringify(base)}), ${here})`,
      `tokenizer = AutoTokenizer.from_pretrained(${here})`,
    ],
    merged: [
      'from transformers import AutoModelForCausalLM, AutoTokenizer',
      '',
      `model = AutoModelForCausalLM.from_pretrained(${here})`,
      `tokenizer = AutoTokenizer.from_pretrained(${here})`,
    ],
    checkpoint: [],
  };
  return lines[format].length === 0 ? [] : ['', '## Use', '', '```python', ...lines[format], '```'];
}

function shown(value: Estimate | null): string {
  if (value === null) return '–';
  return `${value.mean.toFixed(3)}${value.stderr === null ? '' : ` ± ${value.stderr.toFixed(3)}`}`;
}

/** Text within a line of Markdown, escaped so that it formats nothing. */
function inline(value: unknown): string {
  return printable(String(value)).replaceAll(/[`|\n]/g, ' ');
}
