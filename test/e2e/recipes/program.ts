/**
 * The built program with one recipe more, as somebody builds it who has added one: the recipe's folder among the others, and its lines in
 * the two tables' source files.
 */
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import ts from 'typescript';
import { ROOT } from '../editrl.js';

const BUILT = join(ROOT, 'dist/src');
/** The tables, as files without extension below src. */
const TABLES = ['recipes/settings', 'recipes/open'];

export interface ExtraRecipe {
  /** What a config's `task` says; the recipe's folder is called so too. */
  readonly name: string;
  /** Where its source files lie. */
  readonly folder: string;
  /** What its settings.ts and its open.ts export for the tables. */
  readonly member: string;
}

export interface Program {
  /** What node is started with. */
  readonly command: string;
  /** Its built files that the product does not have, or has otherwise; relative to src. */
  readonly different: readonly string[];
  remove(): void;
}

/** Needs the product's own build. Raises where a table is not found in its file. */
export function programWith(recipe: ExtraRecipe): Program {
  const dir = mkdtempSync(join(tmpdir(), 'editrl-program-'));
  const src = join(dir, 'dist/src');
  cpSync(BUILT, src, { recursive: true, filter: (path) => !/\.(d\.ts|map)$/.test(path) });
  for (const name of ['package.json', 'node_modules']) symlinkSync(join(ROOT, name), join(dir, name));
  for (const table of TABLES) {
    const source = readFileSync(join(ROOT, 'src', `${table}.ts`), 'utf8');
    writeFileSync(join(src, `${table}.js`), transpiled(withLines(source, table, recipe)));
  }
  const own = join(src, 'recipes', recipe.name);
  mkdirSync(own);
  for (const file of readdirSync(recipe.folder).filter((name) => name.endsWith('.ts'))) {
    // From where it is checked against the contracts to where it would lie.
    const source = readFileSync(join(recipe.folder, file), 'utf8').replaceAll(/'(\.\.\/)+src\//g, "'../../");
    writeFileSync(join(own, file.replace(/\.ts$/, '.js')), transpiled(source));
  }
  const [before, after] = [digests(BUILT), digests(src)];
  return {
    command: join(src, 'cli/main.js'),
    different: [...after].flatMap(([name, digest]) => (before.get(name) === digest ? [] : [name])),
    remove: () => rmSync(dir, { recursive: true, force: true }),
  };
}

/** The source of a table with one import and one entry more. */
function withLines(source: string, table: string, { name, member }: ExtraRecipe): string {
  const head = /^(export )?const recipes\b.* = \{$/gm;
  if (source.match(head)?.length !== 1) throw new Error(`src/${table}.ts: there is not one table of recipes in it`);
  const file = table.slice(table.lastIndexOf('/') + 1);
  const entry = source.replace(head, (line) => `${line}\n  ${name}: ${member},`);
  return entry.replace(/^import /m, `import { ${member} } from './${name}/${file}.js';\nimport `);
}

function transpiled(source: string): string {
  const { config } = ts.readConfigFile(join(ROOT, 'tsconfig.json'), (path) => ts.sys.readFile(path)) as {
    config: { compilerOptions: object };
  };
  const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, ROOT);
  const { outputText } = ts.transpileModule(source, {
    compilerOptions: { ...options, sourceMap: false },
    fileName: 'module.mts',
  });
  return outputText;
}

/** Digests of the compiled modules, by path. */
function digests(folder: string): ReadonlyMap<string, string> {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.js'));
  return new Map(
    names.map((name) => {
      const text = readFileSync(join(folder, name), 'utf8').replace(/\/\/# sourceMappingURL=.*\s*$/, '');
      return [name, createHash('sha256').update(text).digest('hex')];
    }),
  );
}
