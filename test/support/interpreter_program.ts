/**
 * Jsonnet's process in tests, which run from the sources: its program is compiled to where the build puts it, before any test, and found
 * there by this module in the place of config/interpreter_program.ts.
 */
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

const ROOT = resolve(import.meta.dirname, '../..');

export const interpreterProgram = resolve(ROOT, 'dist/src/config/interpreter_main.js');

/** Set-up of the projects that evaluate Jsonnet. */
export default async function setUp(): Promise<void> {
  const { ModuleKind, ScriptTarget, transpileModule } = (await import('typescript')).default;
  const source = readFileSync(resolve(ROOT, 'src/config/interpreter_main.ts'), 'utf8');
  const { outputText } = transpileModule(source, {
    compilerOptions: { target: ScriptTarget.ES2022, module: ModuleKind.ESNext },
  });
  mkdirSync(dirname(interpreterProgram), { recursive: true });
  // Another test command may be starting it just now.
  const part = `${interpreterProgram}.${process.pid}`;
  writeFileSync(part, outputText);
  renameSync(part, interpreterProgram);
}
