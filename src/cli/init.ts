/** `editrl init FOLDER`: writes a small project whose configs import the shipped ones. */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { UsageError } from '../core/errors.js';
import { diskError, libraryFolder } from '../core/files.js';
import { printJson, printLine } from './shared/output.js';
import { flag, switchOption, text, type Action } from './shared/verb.js';

export const initVerb: Action = {
  positionals: '<folder>',
  build: (yargs) =>
    yargs
      .positional('folder', { type: 'string', demandOption: true, describe: 'New folder for the project' })
      .option('json', switchOption('Print one JSON document'))
      .example('$0 init demo', 'Then: cd demo && npx editrl run configs/quickstart.jsonnet'),
  run: async (args) => {
    const folder = text(args, 'folder');
    const files = writeProject(folder);
    if (flag(args, 'json')) printJson({ folder, files });
    else {
      for (const file of files) printLine(join(folder, file));
      printLine(`\nNext:\n  cd ${quoted(folder)}\n  npx editrl run configs/quickstart.jsonnet`);
    }
    return 0;
  },
};

/** Writes the project and returns its files, relative to the folder. Raises UsageError if the folder is not empty. */
function writeProject(folder: string): string[] {
  if (existsSync(folder) && readdirSync(folder).length > 0) {
    throw new UsageError(`${folder}: the folder is not empty; allowed: a new or an empty folder`, {
      next: 'Choose another name.',
    });
  }
  const template = join(libraryFolder(), 'editrl', 'project');
  const found = readdirSync(template, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return found
    .map((entry) => relative(template, join(entry.parentPath, entry.name)))
    .map((file) => {
      // npm does not pack files named .gitignore.
      const target = file === 'gitignore' ? '.gitignore' : file;
      try {
        mkdirSync(dirname(join(folder, target)), { recursive: true });
        // Files of the package may be read-only, and copies would be too.
        writeFileSync(join(folder, target), readFileSync(join(template, file)));
      } catch (cause) {
        throw diskError(join(folder, target), cause);
      }
      return target;
    })
    .sort();
}

/** Quotes a path for a shell. */
function quoted(path: string): string {
  return /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", `'\\''`)}'`;
}
