/**
 * Runs the command with thousands of wrong configs, overlays, experiments and command lines: each run has to end soon, with a message that
 * a person can use, and never with an internal error.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { main } from '../../src/cli/main.js';
import { loadConfig } from '../../src/config/load.js';
import { RandomStream } from '../../src/core/random.js';
import { pathsOf, wrongExperiment, wrongFlags, wrongOverlay, wrongSet, wrongText } from './mutations.js';

export interface Case {
  readonly number: number;
  readonly argv: readonly string[];
}

export interface CaseResult extends Case {
  readonly code: number;
  readonly out: string;
  readonly err: string;
  readonly seconds: number;
}

/** The limits of an evaluation and, below, of a whole case; the process of the evaluation ends first. */
const LIMITS = { EDITRL_JSONNET_MEMORY_MB: '400', EDITRL_JSONNET_SECONDS: '5' };
const CASE_SECONDS = 30;

const sourceNames = (folder: string, ending: string): string[] =>
  readdirSync(folder)
    .filter((name) => name.endsWith(ending))
    .sort();

/** Wrong inputs in a folder of their own, made from the configs and experiments in `root`. */
export class WrongInputs {
  readonly #texts = new Map<string, string>();
  readonly #env: NodeJS.ProcessEnv;
  #paths: readonly string[] = [];

  private constructor(
    private readonly folder: string,
    private readonly seed: string,
  ) {
    this.#env = {
      ...LIMITS,
      APP__BASE_EXP_DIR: join(folder, 'runs'),
      APP__DATA_DIR: join(folder, 'data'),
      APP__REWARD_FUNCTION_API_BASE: 'http://localhost:4877',
    };
  }

  static async make(root: string, folder: string, seed: string): Promise<WrongInputs> {
    const inputs = new WrongInputs(folder, seed);
    for (const name of ['configs', 'experiments']) cpSync(join(root, name), join(folder, name), { recursive: true });
    writeFileSync(join(folder, 'configs/bytes.libsonnet'), Buffer.from([0x7b, 0xff, 0xfe, 0x27, 0xc3, 0x28, 0x7d]));
    writeFileSync(join(folder, 'configs/cycle_a.libsonnet'), "import 'cycle_b.libsonnet'");
    writeFileSync(join(folder, 'configs/cycle_b.libsonnet'), "{ a: (import 'cycle_a.libsonnet').a }.a");
    mkdirSync(join(folder, 'configs/folder.jsonnet'));
    for (const [place, ending] of [
      ['configs', '.jsonnet'],
      ['configs/lib', '.libsonnet'],
      ['experiments', '.jsonnet'],
    ] as const) {
      for (const name of sourceNames(join(root, place), ending)) {
        inputs.#texts.set(`${place}/${name}`, readFileSync(join(root, place, name), 'utf8'));
      }
    }
    const { settings } = await loadConfig({
      file: join(folder, 'configs/sft_s__rl_s.jsonnet'),
      overlays: [join(folder, 'configs/lib/tiny.libsonnet')],
    });
    inputs.#paths = pathsOf(settings);
    return inputs;
  }

  /** Writes the files of a case; the same number gives the same case. */
  make(number: number): Case {
    const random = new RandomStream('wrong inputs', this.seed, number);
    const at = (name: string): string => join(this.folder, name);
    const write = (name: string, text: string): string => {
      writeFileSync(at(name), text);
      return at(name);
    };
    const of = (place: string): string =>
      random.pick([...this.#texts.keys()].filter((name) => dirname(name) === place));
    const show = random.pick([['config', 'show'], ['check'], ['plan']]);
    const tiny = random.integer(4) === 0 ? [] : ['--with', at('configs/lib/tiny.libsonnet')];
    const someConfig = (): string => at(of('configs'));
    const kinds: readonly (() => readonly string[])[] = [
      () => {
        const text = this.#texts.get(of('configs')) ?? '';
        return [...show, write('configs/mutant.jsonnet', wrongText(text, random)), ...tiny];
      },
      () => {
        const source = of('configs/lib');
        const overlay = write('configs/lib/mutant.libsonnet', wrongText(this.#texts.get(source) ?? '', random));
        return [...show, someConfig(), ...tiny, '--with', overlay];
      },
      () => [
        ...show,
        someConfig(),
        ...tiny,
        '--with',
        write('configs/overlay.libsonnet', wrongOverlay(this.#paths, random)),
      ],
      () => [
        ...show,
        someConfig(),
        ...tiny,
        ...Array.from({ length: 1 + random.integer(2) }, () => ['--set', wrongSet(this.#paths, random)]).flat(),
      ],
      () => {
        const text = this.#texts.get(of('experiments')) ?? '';
        return ['plan', write('experiments/mutant.jsonnet', wrongText(text, random))];
      },
      () => {
        const base = random.pick([
          "import 'sft_s__rl_s.jsonnet'",
          "import 'sft_s.jsonnet'",
          "import 'tiny_vq.jsonnet'",
        ]);
        return ['plan', write('configs/experiment.jsonnet', wrongExperiment(base, random))];
      },
      () => [...show, ...(random.integer(5) === 0 ? [] : [someConfig()]), ...wrongFlags(random)],
      () => [
        ...show,
        random.pick([
          at('configs'),
          at('configs/folder.jsonnet'),
          at('configs/bytes.libsonnet'),
          at('configs/cycle_a.libsonnet'),
          '/dev/null',
          `${someConfig()}x`,
          someConfig().slice(0, -3),
          '',
          'a\nb',
          'x'.repeat(5000),
          '-',
        ]),
        ...tiny,
      ],
      () => [
        random.pick(['run', 'sweep', 'resume', 'status', 'stop', 'logs', 'report', 'rescore', 'data', 'rnu', 'config']),
        random.pick([at('nothing.jsonnet'), at('configs'), 'nothing', '']),
        ...wrongFlags(random),
      ],
    ];
    return { number, argv: random.pick(kinds)() };
  }

  /** Calls the command in this process. */
  async call(one: Case): Promise<CaseResult> {
    const restore = Object.entries(this.#env).map(([name, value]) => {
      const before = process.env[name];
      process.env[name] = value;
      return () => (before === undefined ? delete process.env[name] : (process.env[name] = before));
    });
    const texts = { stdout: '', stderr: '' };
    const writers = (['stdout', 'stderr'] as const).map((name) => {
      const stream = process[name];
      const write = stream.write.bind(stream);
      stream.write = (chunk: string | Uint8Array) => {
        texts[name] += String(chunk);
        return true;
      };
      return () => (stream.write = write);
    });
    const start = performance.now();
    try {
      const code = await main(one.argv);
      return { ...one, code, out: texts.stdout, err: texts.stderr, seconds: (performance.now() - start) / 1000 };
    } finally {
      for (const undo of [...restore, ...writers]) undo();
    }
  }

  /** Calls the built command in a separate process. */
  callCommand(one: Case, command: string): CaseResult {
    const start = performance.now();
    const { status, stdout, stderr, signal } = spawnSync(process.execPath, [command, ...one.argv], {
      env: { ...process.env, ...this.#env },
      encoding: 'utf8',
      timeout: CASE_SECONDS * 1000,
      maxBuffer: 2 ** 28,
    });
    const err = signal === null ? stderr : `${stderr}\nended by ${signal}`;
    return { ...one, code: status ?? -1, out: stdout, err, seconds: (performance.now() - start) / 1000 };
  }
}

/** Text that no message may contain: errors of this program or of the language, and values that were printed by mistake. */
const telltale =
  /internal:|\b(Internal|Type|Range|Reference|Syntax)Error\b|\n\s+at \S+ \(|with --debug|\[object |\bundefined\b(?! external)|Maximum call stack|basic_filebuf|ERR_[A-Z]|[\u0000-\u0008\u000b-\u001f\u007f]/;

/** What is wrong with the result of a case; null if nothing is wrong. */
export function complaint({ code, err, out, seconds }: CaseResult): string | null {
  if (seconds > CASE_SECONDS) return `took ${seconds.toFixed(0)} s`;
  if (code !== 0 && err.trim() === '' && out.trim() === '') return `exit code ${code} without a word`;
  const found = telltale.exec(err);
  if (found !== null) return `says ${JSON.stringify(found[0])}`;
  // Exit code 1 is for runs that do not exist.
  return [0, 1, 2].includes(code) ? null : `exit code ${code}`;
}

export interface FuzzOptions {
  readonly root: string;
  readonly folder: string;
  readonly seed: string;
  readonly numbers: Iterable<number>;
  /** The built command; every `every`-th case calls it in a separate process. Without this field, no case does. */
  readonly command?: { readonly file: string; readonly every: number };
  readonly onCase?: (result: CaseResult, wrong: string | null) => void;
}

/** Runs all cases; returns the complaints, each with what is needed to reproduce it, and the number of rejected inputs. */
export async function fuzzInputs(
  options: FuzzOptions,
): Promise<{ readonly refused: number; readonly complaints: string[] }> {
  const { root, folder, seed, numbers, command, onCase } = options;
  const inputs = await WrongInputs.make(resolve(root), folder, seed);
  const complaints: string[] = [];
  let refused = 0;
  for (const number of numbers) {
    const one = inputs.make(number);
    const apart = command !== undefined && number % command.every === 0;
    const result = apart ? inputs.callCommand(one, command.file) : await inputs.call(one);
    if (result.code !== 0) refused += 1;
    const wrong = complaint(result);
    if (wrong !== null) complaints.push(`case ${number}: ${wrong}: ${one.argv.join(' ')}\n${result.err}`);
    onCase?.(result, wrong);
  }
  return { refused, complaints };
}
