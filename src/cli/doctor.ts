/** `editrl doctor`: checks the prerequisites on this machine and explains how to install missing ones. */
import { execFile } from 'node:child_process';
import { availableParallelism, totalmem } from 'node:os';
import { promisify } from 'node:util';
import { wrap } from '../core/terminal.js';
import { FFMPEG_ADVICE } from '../data/video/ffmpeg.js';
import { EditrlError, EngineError } from '../core/errors.js';
import { rejectIdleGpu } from '../compute/onnx/cuda.js';
import { detectDevices, gibibytes, type Devices } from '../launch/machine/devices.js';
import { availableMemory } from '../launch/machine/memory.js';
import { outputWidth, printJson, printLine, printWrapped, styled } from './shared/output.js';
import { flag, jsonOption, type Action } from './shared/verb.js';

export interface Finding {
  readonly name: string;
  /** `missing` fails the check. `absent` marks something useful that is not required. */
  readonly state: 'ok' | 'missing' | 'absent';
  readonly detail: string;
  /** Advice, or null. */
  readonly next: string | null;
}

const run = promisify(execFile);

export const doctorVerb: Action = {
  positionals: '',
  build: (yargs) => yargs.option('json', jsonOption).example('$0 doctor', 'One line per prerequisite'),
  run: async (args) => {
    const [findings, { coverage, LIMITS }] = await Promise.all([examine(), import('../launch/coverage.js')]);
    if (flag(args, 'json')) printJson({ ok: isUsable(findings), findings, coverage: coverage(), limits: LIMITS });
    else {
      findings.forEach(printFinding);
      printLine('\nSupported (docs/reference/coverage.md lists the limits):');
      for (const { what, names } of coverage()) printWrapped(`${what}: ${names.join(', ')}`);
      printWrapped(LIMITS);
    }
    return isUsable(findings) ? 0 : 1;
  },
};

/** Checks everything that editrl needs or can use. */
export async function examine(): Promise<Finding[]> {
  return Promise.all([
    Promise.resolve(nodeVersion(process.versions.node)),
    program('cmake', ['cmake'], 'Install cmake (Debian: apt install cmake); npm ci needs it to build libjsonnet.'),
    program(
      'C++ compiler',
      ['c++', 'g++', 'clang++'],
      'Install a C++ compiler (Debian: apt install g++); npm ci needs it to build libjsonnet.',
    ),
    jsonnetBinding(),
    ffmpeg(),
    onnxRuntime(),
    Promise.resolve(memory(availableMemory(), totalmem())),
    Promise.resolve(gpu()),
  ]);
}

function isUsable(findings: readonly Finding[]): boolean {
  return findings.every(({ state }) => state !== 'missing');
}

/** Column of a finding's detail, after its state and name. */
const INDENT = 22;

function printFinding({ name, state, detail, next }: Finding): void {
  const style = { ok: 'green', missing: 'red', absent: 'dim' } as const;
  const width = outputWidth() - INDENT;
  const [first, ...more] = [detail, ...(next === null ? [] : [next])].flatMap((text) => wrap(text, width));
  printLine(`${styled(state.padEnd(8), style[state])}${name.padEnd(INDENT - 8)}${first}`);
  for (const line of more) printLine(`${' '.repeat(INDENT)}${line}`);
}

/** Node 20.19 is the first 20.x that loads the packages used here. */
export function nodeVersion(version: string): Finding {
  const [major, minor] = version.split('.').map(Number);
  const isNewEnough = major > 20 || (major === 20 && minor >= 19);
  return {
    name: 'Node',
    state: isNewEnough ? 'ok' : 'missing',
    detail: version,
    next: isNewEnough ? null : 'Install Node 20.19 or later from https://nodejs.org.',
  };
}

async function program(name: string, commands: readonly string[], next: string): Promise<Finding> {
  for (const command of commands) {
    const version = await firstLineOf(command, ['--version']);
    if (version !== null) return { name, state: 'ok', detail: version, next: null };
  }
  return { name, state: 'missing', detail: `cannot run ${commands.join(' or ')}`, next };
}

/** Only videos need ffmpeg. */
async function ffmpeg(): Promise<Finding> {
  const name = 'ffmpeg';
  const [version, probe] = await Promise.all([
    firstLineOf('ffmpeg', ['-version']),
    firstLineOf('ffprobe', ['-version']),
  ]);
  if (version !== null && probe !== null) return { name, state: 'ok', detail: version, next: null };
  return { name, state: 'absent', detail: 'cannot run ffmpeg and ffprobe, which videos need', next: FFMPEG_ADVICE };
}

/** The first line of a command's output, or null if the command fails. */
async function firstLineOf(command: string, args: readonly string[]): Promise<string | null> {
  try {
    const { stdout } = await run(command, [...args], { timeout: 10_000 });
    return stdout.split('\n', 1)[0].trim();
  } catch {
    return null; // A failing command is a valid result here.
  }
}

async function jsonnetBinding(): Promise<Finding> {
  const name = 'libjsonnet';
  const packageName: string = '@hanazuki/node-jsonnet';
  try {
    const binding = (await import(packageName)) as { Jsonnet: { version: string } };
    return { name, state: 'ok', detail: binding.Jsonnet.version, next: null };
  } catch (error) {
    return {
      name,
      state: 'missing',
      detail: reason(error),
      next: 'With cmake and a C++ compiler installed: npm rebuild @hanazuki/node-jsonnet',
    };
  }
}

async function onnxRuntime(): Promise<Finding> {
  const name = 'onnxruntime';
  try {
    const { describeRuntime } = await import('../compute/onnx/provider.js');
    const { version, available, missing } = await describeRuntime();
    const lacking = Object.entries(missing).map(([provider, why]) => `no ${provider}: ${why}`);
    return { name, state: 'ok', detail: [`${version}, ${available.join(', ')}`, ...lacking].join('; '), next: null };
  } catch (error) {
    return { name, state: 'missing', detail: reason(error), next: 'Install the packages again: npm ci' };
  }
}

/** `available` and `total` are in bytes. Tiny runs need less than a gigabyte. */
export function memory(available: number, total: number): Finding {
  const isEnough = available >= 2 ** 30;
  return {
    name: 'memory',
    state: isEnough ? 'ok' : 'missing',
    detail: `${gibibytes(available)} available of ${gibibytes(total)}, ${availableParallelism()} cores`,
    next: isEnough ? null : 'Close other programs. The tiny size needs about 1 GiB.',
  };
}

/** `idle`: the reason why the onnx engine cannot use the GPUs, or null. */
export function gpus(devices: Pick<Devices, 'gpus' | 'problem'>, idle: EngineError | null): Finding {
  const name = 'GPU';
  if (devices.problem !== undefined) {
    return {
      name,
      state: 'missing',
      detail: devices.problem,
      next: 'Repair the GPU driver. Run nvidia-smi to see its error.',
    };
  }
  if (devices.gpus.length === 0) {
    return { name, state: 'absent', detail: 'none found, so runs use the CPU', next: null };
  }
  const detail = devices.gpus
    .map((gpu) => `${gpu.index}: ${gpu.name}${gpu.memoryBytes === null ? '' : `, ${gibibytes(gpu.memoryBytes)}`}`)
    .join('; ');
  return { name, state: 'ok', detail, next: idle?.next ?? null };
}

function gpu(): Finding {
  try {
    return gpus(detectDevices(), idleGpu());
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    return { name: 'GPU', state: 'missing', detail: error.message, next: error.next ?? null };
  }
}

function idleGpu(): EngineError | null {
  try {
    rejectIdleGpu('auto');
    return null;
  } catch (error) {
    if (error instanceof EngineError) return error;
    throw error;
  }
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message.split('\n', 1)[0] : String(error);
}
