/** `editrl compare A B …`: shows runs side by side. */
import { UsageError } from '../core/errors.js';
import { compareRuns, formatComparison, type Comparison } from '../run/report/compare.js';
import { findReported } from '../run/find.js';
import { outputWidth, printJson, printLine } from './shared/output.js';
import { documentOf, htmlOption, writePage } from './report.js';
import { expDirOption, flag, text, texts, type Action, type Arguments } from './shared/verb.js';

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
      const { comparisonFile } = await import('../web/comparison.js');
      return writePage(await comparisonFile(comparison), args, 'comparison.html');
    }
    if (flag(args, 'json')) printJson(comparisonDocument(comparison));
    else printLine(formatComparison(comparison, outputWidth()));
    return 0;
  },
};

/** Compares the runs that the flags name with the first of them. Raises UsageError for fewer than two, or for an experiment. */
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
