/** editrl data bench: benchmarks of image editing as lists that runs are evaluated on. */
import { resolve } from 'node:path';
import { UsageError } from '../core/errors.js';
import { writeBenchmark } from '../data/benchmarks.js';
import { printJson, printLine } from './output.js';
import { flag, text, texts, type Action } from './verb.js';

export const benchAction: Action & { readonly summary: string } = {
  summary: 'make lists of edits of GEdit-Bench or ImgEdit',
  positionals: '<lists..>',
  build: (yargs) =>
    yargs
      .positional('lists', {
        type: 'string',
        array: true,
        demandOption: true,
        describe: "GEdit-Bench's parquet files, or ImgEdit's basic_edit.json or UGE_edit.json",
      })
      .option('pictures', {
        type: 'string',
        requiresArg: true,
        describe: "the folder that the pictures of ImgEdit's list are named below",
      })
      .option('language', {
        choices: ['en', 'cn', 'all'] as const,
        default: 'en',
        describe: "which of GEdit-Bench's instructions are taken",
      })
      .option('out', { type: 'string', demandOption: true, requiresArg: true, describe: 'the folder to make' })
      .option('json', { type: 'boolean', default: false, describe: 'print one JSON document, for machines' })
      .example('$0 data bench GEdit-Bench/data/*.parquet --out gedit', 'then: editrl evaluate RUN --data gedit')
      .example('$0 data bench basic_edit.json --pictures Benchmark/singleturn --out imgedit', 'a list for each type'),
  run: async (args) => {
    const lists = texts(args, 'lists');
    const other = lists.find((list) => !/\.(parquet|json)$/.test(list));
    if (other !== undefined) {
      throw new UsageError(`found ${other}; allowed: .parquet files of GEdit-Bench, or a .json list of ImgEdit`);
    }
    const language = text(args, 'language');
    const pictures = text(args, 'pictures');
    const out = text(args, 'out');
    const types = await writeBenchmark({
      lists,
      pictures: pictures === '' ? null : pictures,
      language: language === 'all' ? null : language,
      out,
    });
    if (flag(args, 'json')) printJson({ out: resolve(out), types });
    else {
      const counts = Object.entries(types).map(([type, count]) => `${type} ${count}`);
      const total = Object.values(types).reduce((sum, count) => sum + count, 0);
      printLine(`${out}: ${total} edits (${counts.join(', ')})`);
    }
    return 0;
  },
};
