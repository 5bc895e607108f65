/**
 * What `editrl plan` says that a policy of each recipe's real size takes, with the frozen models around it, by the ways that a machine can hold them; and which of
 * these fit a machine, and which tests run a small twin of them. Written as a page.
 */
import { mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadConfig } from '../../src/config/load.js';
import { EngineError, InternalError } from '../../src/core/errors.js';
import { memoryOf, shapesOf, type Memory } from '../../src/launch/machine/memory.js';
import type { Devices } from '../../src/launch/machine/devices.js';
import { refuseFed } from '../../src/recipes/fed.js';
import { isTrainable, recipeOf } from '../../src/recipes/settings.js';
import { writePipeline } from './real_pipeline.js';
import { around, SEEDS, WAYS, type Around, type Seed, type Way } from './real_seeds.js';

const PAGE = 'experiments/results/real_sizes.md';

interface Place {
  readonly provider: 'cpu' | 'cuda';
  readonly devices: Devices;
  readonly memory: Memory;
}

const gib = (count: number): number => count * 2 ** 30;
const GPU = { index: 0, uuid: 'GPU-0', name: 'a GPU of 80 GB', memoryBytes: 81_559 * 2 ** 20, usedBytes: 0 };
const PLACES: Readonly<Record<string, Place>> = {
  'a CPU with 64 GiB': {
    provider: 'cpu',
    devices: { gpus: [], cpus: 16 },
    memory: { free: gib(64), total: gib(64) },
  },
  'one GPU of 80 GB': {
    provider: 'cuda',
    devices: { gpus: [GPU], cpus: 16 },
    memory: { free: gib(256), total: gib(256) },
  },
};

/** What plan says of a run in a place. */
interface Said {
  readonly bytes: number;
  readonly fits: boolean;
  /** Whether its own engine samples there. */
  readonly samples: boolean;
}

/** Writes the page, and prints it. */
export async function benchRealSizes(): Promise<void> {
  const page = await realSizesPage();
  writeFileSync(PAGE, page);
  console.log(page);
}

/** The page of these seeds. */
export async function realSizesPage(seeds: readonly Seed[] = SEEDS): Promise<string> {
  const work = mkdtempSync(join(tmpdir(), 'editrl-bench-real-sizes-'));
  try {
    const rows: string[] = [];
    const twins: string[] = [];
    for (const seed of seeds) {
      const [cpu, gpu] = [await saidOf(work, seed, 'a CPU with 64 GiB'), await saidOf(work, seed, 'one GPU of 80 GB')];
      const cells = WAYS.map((way) => bytesIn(cpu.get(way)));
      rows.push(row([seed.name, ...cells, firstOf(cpu), firstOf(gpu)]));
      const used = WAYS.filter((way) => [cpu, gpu].some((said) => isHeld(said.get(way))));
      twins.push(row([seed.name, ...WAYS.map((way) => (used.includes(way) ? twinOf(seed.twins[way]) : '–'))]));
    }
    return `${[
      '# Policies of published sizes',
      '`npm run bench -- real-sizes` wrote this page: what `editrl plan` says, in GiB of one process, by the shapes of the models alone. None of them was loaded.',
      [
        row(['GiB of a process', ...WAYS, ...Object.keys(PLACES).map((name) => `${name}: the first that fits`)]),
        row(['---', ...WAYS.map(() => '---:'), '---', '---']),
        ...rows,
      ].join('\n'),
      EXPLAINED,
      '## The small twin of each',
      'For each way that fits one of the two: the test that runs it at a small size, with the stand-in of the other program where there is one. `test/policies` runs the policy alone, not a whole run.',
      [row(['run', ...WAYS]), row(['---', ...WAYS.map(() => '---')]), ...twins].join('\n'),
    ].join('\n\n')}\n`;
  } finally {
    rmSync(work, { recursive: true });
  }
}

const EXPLAINED = [
  'Frozen models around the policy are counted: text encoders exported in float32, Qwen-Image-Edit exported in bfloat16, all others in float32; FLUX held in float16 has the text encoders of its whole folder, held so, too. CLIP as a reward is not.',
  'Small batches: `rollout.chunk_groups=1`, `optimizer.gradient_checkpointing=true`, `optimizer.per_device_batch_size=1`; of FLUX the last two, whose IP-Adapter is what trains.',
  'With vLLM, LoRA is on the decoder alone, and what vLLM takes comes on top, as does a training server. On a GPU only what is not refused is named: own sampling there',
  'is, where a step would be fed more than 8 GiB ([hardware](../../docs/hardware.md#gpus)). CUDA is untested. An estimate is right within a factor of two: what fits by less than a tenth may well not.',
].join(' ');

function row(cells: readonly string[]): string {
  return `| ${cells.join(' | ')} |`;
}

function bytesIn(said: Said | null | undefined): string {
  if (said === null || said === undefined) return '–';
  const size = said.bytes / 2 ** 30;
  return size.toFixed(size < 10 ? 1 : 0);
}

function isHeld(said: Said | null | undefined): boolean {
  return said?.fits === true && said.samples;
}

function firstOf(said: ReadonlyMap<Way, Said | null>): string {
  return WAYS.find((way) => isHeld(said.get(way))) ?? 'none';
}

function twinOf(file: string | null): string {
  return file === null ? 'none' : `[${file.replace(/^test\//, '')}](../../${file})`;
}

async function saidOf(work: string, seed: Seed, name: string): Promise<Map<Way, Said | null>> {
  const { provider, devices, memory } = PLACES[name];
  const folder = join(work, seed.name.replaceAll(/\W+/g, '_'));
  if (seed.model !== undefined) writeModel(folder, seed.model);
  const said = new Map<Way, Said | null>();
  for (const way of WAYS) {
    const folderOf = (model: Around): string => aroundIn(work, model);
    const sets = seed.ways[way]?.(folder, folderOf);
    if (sets === undefined || seed.refused?.[way] === provider) {
      said.set(way, null);
      continue;
    }
    const { settings } = await loadConfig({
      file: seed.config,
      sets: [
        ...(seed.model === undefined ? [] : [`policy.model=${folder}`]),
        `policy.engine.provider=${provider}`,
        ...(seed.sets?.(folderOf) ?? []),
        ...sets,
      ],
      env: { APP__DATA_DIR: join(work, 'data'), APP__REWARD_FUNCTION_API_BASE: 'http://judge/v1' },
    });
    const { bytes, verdict } = memoryOf(new Map(), devices, memory)(settings);
    if (bytes === null || verdict === null || !isTrainable(settings)) {
      throw new InternalError(`no estimate for ${seed.name}, ${way}`);
    }
    const fed = recipeOf(settings).fedPerStep(settings, shapesOf(new Map()), 1);
    said.set(way, { bytes, fits: verdict.fits, samples: !isRefused(() => refuseFed(fed, provider)) });
  }
  return said;
}

function isRefused(look: () => void): boolean {
  try {
    look();
    return false;
  } catch (error) {
    if (error instanceof EngineError) return true;
    throw error;
  }
}

/** The folder of a model around a policy, with files of its size that take no space. */
function aroundIn(work: string, model: Around): string {
  const folder = join(work, 'around', model);
  if (around[model].isPipeline === true) {
    writePipeline(folder, around['flux-fill'].config, around['flux-vae'].config);
    return folder;
  }
  writeModel(folder, around[model].config);
  for (const name of ['model.onnx', 'model.onnx.data']) writeFileSync(join(folder, name), '');
  truncateSync(join(folder, 'model.onnx.data'), around[model].bytes ?? 0);
  return folder;
}

function writeModel(folder: string, config: object): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
}
