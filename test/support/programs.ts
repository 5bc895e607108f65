/**
 * Programs that run in processes of their own, in tests, which run from the sources: a set-up compiles them to where the build puts them.
 */
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { copyLibrary } from '../../scripts/copy_library.js';
import { programPath } from '../../src/core/files.js';

const ROOT = resolve(import.meta.dirname, '../..');

/** With the modules that they load. */
const sources = [
  'config/interpreter_main',
  'models/chat/render_main',
  'rewards/terms/module/exported',
  'rewards/terms/module/try_main',
  'models/chat/python_jinja',
  'models/chat/syntax',
];

export default async function setUp(): Promise<void> {
  copyLibrary();
  const { ModuleKind, ScriptTarget, transpileModule } = (await import('typescript')).default;
  for (const source of sources) {
    const text = readFileSync(resolve(ROOT, `src/${source}.ts`), 'utf8');
    const { outputText } = transpileModule(text, {
      compilerOptions: { target: ScriptTarget.ES2022, module: ModuleKind.ESNext },
    });
    const program = programPath(source);
    mkdirSync(dirname(program), { recursive: true });
    // Another test command may be starting it just now.
    const part = `${program}.${process.pid}`;
    writeFileSync(part, outputText);
    renameSync(part, program);
  }
}
