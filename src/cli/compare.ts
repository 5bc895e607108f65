/** `editrl compare A B …`: runs side by side. */
import { printable, UsageError } from '../core/errors.js';
import { wrap } from '../core/table.js';
import { comparisonRows, compareRuns, letterOf, type Comparison } from '../run/report/compare.js';
import { findReported } from '../run/report/find.js';
import { formatTable, outputWidth, printJson, printLine } from './output.js';
import { documentOf, htmlOption, writePage } from './report.js';
import { expDirOption, flag, text, texts, type Action, type Arguments } from './verb.js';

export const compareVerb: Action = {
  positionals: '<runs..>',
  build: (yargs) =>
    yargs
      .positional('runs', {
        type: 'string',
        array: true,
        demandOption: true,
        describe: 'two or more runs, by name or folder; all are compared with the first',
      })
      .option('json', { type: 'boolean', default: false, describe: 'print one JSON document, for machines' })
      .option('html', htmlOption)
      .option('exp-dir', expDirOption)
      .example(
        '$0 compare sft_s__rl_s low_kl',
        'held-out reward, the paired difference, and what their settings differ in',
      )
      .example('$0 compare sft_s__rl_s low_kl --html both.html', 'with their curves and contact sheets, as one page'),
  run: async (args) => {
    const comparison = comparisonOf(args);
    if (args['html'] !== undefined) {
      const { comparisonReport } = await import('../web/report/comparison.js');
      const title = `${comparison.runs.map(({ report }) => report.run_name).join(', ')}: side by side`;
      const page = { title, text: formatComparison(comparison) };
      return writePage(await comparisonReport(comparison), page, args, 'comparison.html');
    }
    if (flag(args, 'json')) printJson(comparisonDocument(comparison));
    else printLine(formatComparison(comparison));
    return 0;
  },
};

/** The runs that the flags name, compared with the first. Raises UsageError for fewer than two, or for an experiment. */
export function comparisonOf(args: Arguments): Comparison {
  const names = texts(args, 'runs');
  const paths = names.map((name) => {
    const found = findReported(name, text(args, 'exp-dir'));
    if (found.kind === 'run') return found.paths;
    throw new UsageError(`${name} is an experiment; allowed: runs`, {
      next: `Its cells are compared by \`editrl report ${name}\`.`,
    });
  });
  const distinct = new Set(paths.map(({ dir }) => dir));
  if (distinct.size < paths.length || paths.length < 2) {
    const found = paths.length < 2 ? 'one run' : 'the same run twice';
    throw new UsageError(`found ${found}; allowed: two different runs or more`, {
      next: 'Write: editrl compare A B …',
    });
  }
  return compareRuns(paths);
}

/** The document of `--json`. */
export function comparisonDocument({ runs, ...rest }: Comparison): Record<string, unknown> {
  return documentOf({ runs: runs.map(({ report }) => report), ...rest });
}

/** Columns of the runs, under letters because names are long; then the settings that are not the same. */
function formatComparison(comparison: Comparison): string {
  const { runs, settings, remarks } = comparison;
  const letters = runs.map((_, at) => ({ title: letterOf(at), wraps: true }));
  const legend = runs.map(({ report }, at) => `${letterOf(at)}  ${report.run_name}`).join('\n');
  const results = formatTable(
    [{ title: '' }, ...letters.map((column) => ({ ...column, align: 'right' as const }))],
    comparisonRows(comparison).map(({ label, values }) => [label, ...values]),
  );
  const said = remarks.map((remark) => wrap(`Mind: ${remark}`, outputWidth()).join('\n'));
  return [legend, results, ...said, formatSettings(settings, letters)].join('\n\n');
}

function formatSettings(settings: Comparison['settings'], letters: Parameters<typeof formatTable>[0]): string {
  if (settings === null) return 'Their settings cannot be compared: see above.';
  if (settings.length === 0) return 'Their settings are the same.';
  const rows = settings.map(({ key, values }) => [key, ...values.map(shown)]);
  return formatTable([{ title: 'setting', alone: true }, ...letters], rows);
}

function shown(value: unknown): string | null {
  if (value === undefined) return null;
  return printable(typeof value === 'string' ? value : JSON.stringify(value));
}
