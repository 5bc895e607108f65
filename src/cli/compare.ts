/** `editrl compare A B …`: compares runs. */
import { UsageError } from '../core/errors.js';
import { compareRuns, formatComparison, type Comparison } from '../run/report/compare.js';
import { findReported } from '../run/find.js';
import { outputWidth, printJson, printLine } from './shared/output.js';
import { documentOf, htmlOption, writePage } from './report.js';
import { expDirOption, flag, jsonOption, text, texts, type Action, type Arguments } from './shared/verb.js';

export const compareVerb: Action = {
  positionals: '<runs..>',
  build: (yargs) =>
    yargs
      .positional('runs', {
        type: 'string',
        array: true,
        describe: 'Two or more runs, by name or folder. The first is the baseline',
      })
      .option('json', jsonOption)
      .option('html', htmlOption)
      .option('exp-dir', expDirOption)
      .example('$0 compare sft_s__rl_s low_kl', 'Held-out rewards, paired differences, and different settings')
      .example('$0 compare sft_s__rl_s low_kl --html both.html', 'One page, with curves and contact sheets'),
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

/** Compares the given runs with the first of them. Raises UsageError for fewer than two runs, or for an experiment. */
export function comparisonOf(args: Arguments): Comparison {
  const names = texts(args, 'runs');
  const paths = names.map((name) => {
    const found = findReported(name, text(args, 'exp-dir'));
    if (found.kind === 'run') return found.paths;
    throw new UsageError(`${name} is an experiment; allowed: runs`, {
      next: `Compare its cells with \`editrl report ${name}\`.`,
    });
  });
  const distinct = new Set(paths.map(({ dir }) => dir));
  if (distinct.size < paths.length || paths.length < 2) {
    const found = paths.length < 2 ? 'one run' : 'the same run twice';
    throw new UsageError(`found ${found}; allowed: two or more different runs`, {
      next: 'Usage: editrl compare A B …',
    });
  }
  return compareRuns(paths);
}

/** The document of `--json`. */
export function comparisonDocument({ runs, ...rest }: Comparison): Record<string, unknown> {
  return documentOf({ runs: runs.map(({ report }) => report), ...rest });
}
