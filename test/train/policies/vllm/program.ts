/** The stand-in of vLLM as a program of its own, as `vllm serve` is one. */
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import ts from 'typescript';

const ROOT = resolve(import.meta.dirname, '../../../..');
/** A module of the sources or tests, and all that it imports from them, as JavaScript by their paths from the root without extension. */
function compiled(name: string, options: ts.CompilerOptions, all = new Map<string, string>()): Map<string, string> {
  if (all.has(name)) return all;
  const { outputText } = ts.transpileModule(readFileSync(join(ROOT, `${name}.ts`), 'utf8'), {
    compilerOptions: { ...options, sourceMap: false },
    fileName: 'module.mts',
  });
  all.set(name, outputText);
  // What is imported for its types alone is in the source, and not in this.
  for (const { fileName } of ts.preProcessFile(outputText).importedFiles) {
    if (fileName.startsWith('.')) compiled(join(dirname(name), fileName.replace(/\.js$/, '')), options, all);
  }
  return all;
}

/** Where the file `broken` lies beside it, it ends before it listens; where `slow` does, it loads until that is gone; `stalled` holds how many completions it answers at most. */
const MAIN = `import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { StubVllm } from './test/train/policies/vllm/stub_vllm.js';
const beside = (name) => join(import.meta.dirname, name);
appendFileSync(beside('starts'), JSON.stringify({ pid: process.pid, args: process.argv.slice(2), env: process.env }) + '\\n');
if (existsSync(beside('broken'))) {
  console.error('torch.OutOfMemoryError: CUDA out of memory.');
  process.exit(1);
}
const KNOWN = ['host', 'port', 'max-lora-rank', 'logprobs-mode', 'generation-config', 'max-model-len', 'gpu-memory-utilization', 'tensor-parallel-size', 'middleware', 'logits-processors', 'mm-processor-kwargs', 'media-io-kwargs'];
const flags = { 'enable-lora': false, 'enable-scale-out': false, 'no-async-scheduling': false };
const [model, ...rest] = process.argv.slice(2);
while (rest.length > 0) {
  const flag = rest.shift().replace(/^--/, '');
  if (flags[flag] === false) flags[flag] = true;
  else if (KNOWN.includes(flag)) flags[flag] = rest.shift();
  else {
    console.error('vllm: error: unrecognized arguments: --' + flag);
    process.exit(2);
  }
}
// Python finds it where PYTHONPATH says.
for (const name of [flags.middleware, flags['logits-processors']]) {
  const [module] = (name ?? '').split(/[.:]/);
  const found = (process.env.PYTHONPATH ?? '').split(':').some((folder) => existsSync(join(folder, module + '.py')));
  if (module !== '' && !found) {
    console.error("ModuleNotFoundError: No module named '" + module + "'");
    process.exit(1);
  }
}
const stub = await StubVllm.start({
  base: model,
  port: Number(flags.port),
  logprobsMode: flags['logprobs-mode'],
  maxLoraRank: Number(flags['max-lora-rank'] ?? 1),
  maxModelLen: Number(flags['max-model-len']),
  enableLora: flags['enable-lora'],
  scaleOut: flags['enable-scale-out'],
  devMode: process.env.VLLM_SERVER_DEV_MODE === '1',
  guarded: flags.middleware !== undefined,
  rules: flags['logits-processors'] !== undefined,
  runtimeUpdating: process.env.VLLM_ALLOW_RUNTIME_LORA_UPDATING === 'True',
  apiKey: process.env.VLLM_API_KEY,
  salt: existsSync(beside('salt')) ? 1 : 0,
});
if (existsSync(beside('slow'))) stub.state = 'loading';
if (existsSync(beside('stalled'))) {
  const answers = ['/v1/completions', '/inference/v1/generate'];
  const most = Number(readFileSync(beside('stalled'), 'utf8'));
  stub.fault = ({ path, earlier }) => (answers.includes(path) && earlier >= most ? { kind: 'stall' } : null);
}
setInterval(() => {
  if (stub.state === 'loading' && !existsSync(beside('slow'))) stub.state = 'up';
}, 20);
console.log('INFO: Application startup complete.');
`;

export interface Started {
  readonly pid: number;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

export class StubProgram {
  /** What is started with the model and flags behind it. */
  readonly command: readonly string[];

  constructor(private readonly dir: string) {
    const { config } = ts.readConfigFile(join(ROOT, 'tsconfig.json'), (path) => ts.sys.readFile(path)) as {
      config: { compilerOptions: object };
    };
    const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, ROOT);
    for (const [name, text] of compiled('test/train/policies/vllm/stub_vllm', options)) {
      mkdirSync(dirname(join(dir, name)), { recursive: true });
      writeFileSync(join(dir, `${name}.js`), text);
    }
    writeFileSync(join(dir, 'package.json'), '{"type": "module"}');
    writeFileSync(join(dir, 'serve.js'), MAIN);
    this.command = [process.execPath, join(dir, 'serve.js')];
  }

  /** From now on it is like that, until it is mended. */
  spoil(how: 'broken' | 'slow' | 'salt'): void {
    writeFileSync(join(this.dir, how), '');
  }

  /** Its next starts answer so many completions, and let all others wait. */
  stall(after: number): void {
    writeFileSync(join(this.dir, 'stalled'), String(after));
  }

  mend(): void {
    for (const how of ['broken', 'slow', 'salt', 'stalled']) rmSync(join(this.dir, how), { force: true });
  }

  /** Its starts so far, oldest first. */
  get starts(): readonly Started[] {
    const file = join(this.dir, 'starts');
    if (!existsSync(file)) return [];
    // The last one may be half written.
    return readFileSync(file, 'utf8')
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Started);
  }
}
