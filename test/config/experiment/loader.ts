/** Experiments of tests, written to a folder of the file that loads them. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadExperiment } from '../../../src/config/experiment/load.js';
import { testFolders } from '../../support/folder.js';

const base = `{
  run_name: std.extVar('APP__RUN_NAME'), task: 'external', num_iterations: 10, launch: { command: ['true'] },
  lr:: 1, parameters: { rate: $.lr, named: 'x__' + $.run_name },
}`;

/** Loads an experiment from its text, which may name the config `base`, with other files beside it. */
export type LoadText = (
  text: string,
  others?: Readonly<Record<string, string>>,
  env?: Readonly<Record<string, string>>,
) => ReturnType<typeof loadExperiment>;

export function experimentLoader(): LoadText {
  const write = experimentWriter();
  return (text, others = {}, env = {}) => loadExperiment({ file: write(text, others), env });
}

/** Writes an experiment as `experimentLoader` does, and returns its file. */
export function experimentWriter(): (text: string, others?: Readonly<Record<string, string>>) => string {
  const newFolder = testFolders('matrix');
  return (text, others = {}) => {
    const here = newFolder();
    for (const [name, content] of Object.entries(others)) writeFileSync(join(here, name), content);
    const file = join(here, 'exp.jsonnet');
    writeFileSync(file, `local base = ${base};\n${text}`);
    return file;
  };
}

/** Values of an axis: `n` of them, named by their number. */
export function series(n: number, value: (i: number) => string): string {
  return Array.from({ length: n }, (_, i) => `'${i}': { ${value(i)} }`).join(', ');
}
