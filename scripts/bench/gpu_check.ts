/**
 * `scripts/gpu_check`: runs each measurement in its own process, compares it with the CPU provider, and writes the
 * results as a page.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { EditrlError } from '../../src/core/errors.js';
import { describeRuntime } from '../../src/compute/onnx/provider.js';
import type { Provider } from '../../src/compute/onnx/session.js';
import { detectDevices } from '../../src/launch/machine/devices.js';
import {
  sizes,
  type Job,
  type Learning,
  type Part,
  type ProductSpeed,
  type Report,
  type Sampling,
  type Size,
} from './gpu_check_parts.js';
import { pageOf, TOLERATED, type Agreement, type Asked, type OfModel } from './gpu_check_page.js';

/** Has a job measured. */
export type Ask = (job: Job, deadline: number) => AsyncIterable<Report>;

/** How often nvidia-smi is queried while a model is measured. */
const LOOK_MS = 1000;

/** Measures, reports each step, and returns the page and whether everything succeeded. */
export async function gpuCheck(
  asked: Asked,
  say: (line: string) => void,
  ask: Ask = inProcess,
): Promise<{ readonly page: string; readonly succeeded: boolean }> {
  const deadline = performance.now() + asked.minutes * 60_000;
  const failed: string[] = [];
  const fail = (what: string, why: string): void => {
    const line = `${what}: ${why.replaceAll(/\s+/g, ' ')}`;
    failed.push(line);
    say(`  FAILED ${line}`);
  };
  const folder = mkdtempSync(join(tmpdir(), 'editrl-gpu-check-'));
  try {
    const machine = await machineLines(asked.provider, (why) => fail('the GPU', why));
    machine.forEach(say);
    const { provider, threads } = asked;
    const sides = [...new Set(asked.sizes.flatMap((size) => sizes[size].sides))].sort((a, b) => a - b);
    say('products');
    const told = await gather(ask({ kind: 'products', provider, threads, sides }, deadline), 'products', fail);
    const models: OfModel[] = [];
    for (const size of asked.sizes) {
      say(sizes[size].title);
      models.push(await checkModel(asked, size, { ask, deadline, folder, fail }));
    }
    const page = pageOf({ asked, machine, products: told.products ?? [], models, failed });
    return { page, succeeded: failed.length === 0 };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

interface Checking {
  readonly ask: Ask;
  readonly deadline: number;
  readonly folder: string;
  readonly fail: (what: string, why: string) => void;
}

async function checkModel(
  { provider, threads }: Asked,
  size: Size,
  { ask, deadline, folder, fail }: Checking,
): Promise<OfModel> {
  const [own, cpu] = [join(folder, `${size}_own`), join(folder, `${size}_cpu`)];
  const gpu = new GpuMemory(provider);
  const job = { kind: 'model', size, threads } as const;
  const found = await gather(ask({ ...job, provider, rounds: 3, values: own }, deadline), size, fail);
  const gpuBytes = gpu.close();
  const { sampling = null, learning = null, memory: peakBytes = null } = found;
  const of = { size, sampling, learning, peakBytes, gpuBytes };
  if (learning === null) return { ...of, agreement: null };
  const reference = ask({ ...job, provider: 'cpu', rounds: null, values: cpu }, deadline);
  const beside = await gather(reference, `${size} on the CPU, to compare with`, fail);
  if (beside.learning === undefined) return { ...of, agreement: null };
  const agreement = agreementOf(floatsOf(own), floatsOf(cpu), learning.logProbs);
  for (const [name, limit] of Object.entries(TOLERATED) as [keyof Agreement, number][]) {
    // A difference that is NaN is not tolerated.
    if (!(agreement[name] <= limit)) {
      fail(
        `${size} ${name}`,
        `differ by ${agreement[name].toExponential(1)} from the CPU provider's; allowed: ${limit}`,
      );
    }
  }
  return { ...of, agreement };
}

interface Gathered {
  products?: readonly ProductSpeed[];
  sampling?: Sampling;
  learning?: Learning;
  memory?: number;
}

/** The results of a job. Failures are reported. */
async function gather(reports: AsyncIterable<Report>, what: string, fail: Checking['fail']): Promise<Gathered> {
  const found: Gathered = {};
  for await (const report of reports) {
    if ('failed' in report) fail(report.part === what ? what : `${what} ${report.part}`, report.failed);
    else if (report.part === 'memory') found.memory = report.peakBytes;
    else Object.assign(found, { [report.part]: report.found });
  }
  return found;
}

function floatsOf(file: string): Float32Array {
  const { buffer, byteOffset, byteLength } = Uint8Array.from(readFileSync(file));
  return new Float32Array(buffer, byteOffset, byteLength / 4);
}

function agreementOf(own: Float32Array, cpu: Float32Array, logProbs: number): Agreement {
  let [largest, difference, norm] = [0, 0, 0];
  cpu.forEach((value, i) => {
    const apart = own[i] - value;
    // A difference that is not a number stays one.
    if (i < logProbs) largest = Math.max(largest, Math.abs(apart));
    else {
      difference += apart ** 2;
      norm += value ** 2;
    }
  });
  return { logProbs: largest, gradient: Math.sqrt(difference / norm) };
}

/** The parts of a job. If a process dies, the parts without a result have failed. */
const PARTS: Readonly<Record<Job['kind'], readonly Part[]>> = {
  products: ['products'],
  model: ['sampling', 'learning'],
};

/** Measures in a process, which is ended when the time is over. */
async function* inProcess(job: Job, deadline: number): AsyncGenerator<Report> {
  const program = fileURLToPath(new URL('gpu_check_process.js', import.meta.url));
  const child = spawn(process.execPath, [program, JSON.stringify(job)], { stdio: ['ignore', 'pipe', 'pipe'] });
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => (errors = `${errors}${chunk.toString()}`.slice(-2000)));
  const ended = new Promise<string>((resolve) => {
    child.on('error', (error) => resolve(error.message));
    child.on('close', (status, signal) => resolve(`its process ended with ${signal ?? String(status)}`));
  });
  let late = false;
  const timer = setTimeout(
    () => {
      late = true;
      child.kill('SIGKILL');
    },
    Math.max(0, deadline - performance.now()),
  );
  const missing = new Set(PARTS[job.kind].filter((part) => part !== 'sampling' || !('rounds' in job) || job.rounds));
  for await (const line of createInterface({ input: child.stdout })) {
    if (!line.startsWith('{')) continue;
    const report = JSON.parse(line) as Report;
    missing.delete(report.part as Part);
    yield report;
  }
  const how = await ended;
  clearTimeout(timer);
  const why = late ? 'the minutes of --minutes were over before it was done' : `${how}: ${errors.trim()}`;
  for (const part of missing) yield { part, failed: why };
}

/** The increase of the GPUs' memory use over the start, at most, during a measurement. */
class GpuMemory {
  readonly #before: number | null;
  readonly #timer: NodeJS.Timeout | null;
  #most: number;

  constructor(provider: Provider) {
    this.#before = provider === 'cpu' ? null : usedBytes();
    this.#most = this.#before ?? 0;
    this.#timer = this.#before === null ? null : setInterval(() => this.#look(), LOOK_MS);
  }

  /** Bytes. Null without nvidia-smi. */
  close(): number | null {
    if (this.#timer === null) return null;
    clearInterval(this.#timer);
    return this.#most - this.#before!;
  }

  #look(): void {
    this.#most = Math.max(this.#most, usedBytes() ?? 0);
  }
}

/** Null also if nvidia-smi fails, which the page reports once. */
function usedBytes(): number | null {
  try {
    const used = detectDevices().gpus.map((gpu) => gpu.usedBytes);
    return used.length === 0 || used.includes(null) ? null : used.reduce((sum: number, bytes) => sum + bytes!, 0);
  } catch (error) {
    if (error instanceof EditrlError) return null;
    throw error;
  }
}

/** The machine in a few lines: processor, GPU, runtime. */
async function machineLines(provider: Provider, fail: (why: string) => void): Promise<string[]> {
  const { version } = await describeRuntime();
  return [
    `Processor: ${cpus()[0]?.model ?? 'unknown'}, ${availableParallelism()} threads`,
    `GPU: ${provider === 'cpu' ? 'none' : gpuName(provider, fail)}`,
    `onnxruntime-node ${version}, node ${process.version}, ${process.platform} ${process.arch}`,
  ];
}

function gpuName(provider: Provider, fail: (why: string) => void): string {
  try {
    const { gpus, problem } = detectDevices();
    if (problem !== undefined) fail(problem);
    const names = gpus.map(({ name }) => name);
    if (names.length > 0) return names.join(', ');
  } catch (error) {
    fail((error as Error).message);
  }
  const icd = process.env['VK_ICD_FILENAMES'];
  const driver = provider !== 'webgpu' || icd === undefined ? '' : ` (Vulkan by ${basename(icd)})`;
  return `nvidia-smi lists none, and onnxruntime-node reports no adapter${driver}`;
}
