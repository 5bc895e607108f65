/** Plain JavaScript of the source folders that child processes of tests import; vitest's own transformation reaches only its workers. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import ts from 'typescript';

const ROOT = resolve(import.meta.dirname, '../..');

/** Transpiles `src/{core,run,rewards}` to a folder from which packages resolve; `remove` deletes it again. */
export function compileSources(): { dir: string; remove: () => void } {
  const cache = join(ROOT, 'node_modules', '.cache');
  mkdirSync(cache, { recursive: true });
  const dir = mkdtempSync(join(cache, 'editrl-test-'));
  for (const folder of ['core', 'run', 'rewards']) {
    for (const name of readdirSync(join(ROOT, 'src', folder), { recursive: true, encoding: 'utf8' })) {
      if (!name.endsWith('.ts')) continue;
      const { outputText } = ts.transpileModule(readFileSync(join(ROOT, 'src', folder, name), 'utf8'), {
        compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022, verbatimModuleSyntax: true },
      });
      const target = join(dir, folder, name.replace(/\.ts$/, '.js'));
      mkdirSync(dirname(target), { recursive: true });
      writeFileSync(target, outputText);
    }
  }
  writeFileSync(join(dir, 'package.json'), '{"type": "module"}\n');
  return { dir, remove: () => rmSync(dir, { recursive: true, force: true }) };
}
