/** Made-up run directories that look like those of trainings, for benchmarks and tests of code that shows runs. */
import { writeExperiment } from '../../src/run/find.js';
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { encodePng, sha256, type RgbImage } from '../../src/core/images/image.js';
import { RandomStream } from '../../src/core/random.js';
import { encodeLine } from '../../src/run/journal.js';
import { RunPaths } from '../../src/run/paths.js';
import type { RunStateName } from '../../src/run/state.js';

export interface MadeRun {
  readonly name: string;
  readonly state: RunStateName;
  readonly iteration: number;
  readonly numIterations: number;
  readonly reason?: string | null;
  /** Settings that differ from the common ones. */
  readonly algorithm?: Readonly<Record<string, unknown>>;
  readonly reward?: Readonly<Record<string, unknown>>;
  readonly seed?: number;
  /** The number of lines of metrics; by default the number of iterations. */
  readonly lines?: number;
  /** The value that its rewards end at. */
  readonly level?: number;
  /** A hack alarm that is active from one iteration to another; by default it is still active at the end. */
  readonly alarm?: { readonly name: string; readonly from: number; readonly to?: number };
  readonly log?: string;
  /** The run's time, in milliseconds since 1970. */
  readonly at?: number;
}

/** Writes a run; no process owns it. */
export function writeRun(folder: string, run: MadeRun): RunPaths {
  const paths = new RunPaths(folder, run.name);
  const { state, iteration, numIterations, reason = null, at = Date.UTC(2026, 0, 1) } = run;
  const time = new Date(at).toISOString();
  mkdirSync(paths.attemptLogsDir(1), { recursive: true });
  writeFileSync(
    paths.record,
    `${JSON.stringify({
      format: 1,
      run_name: run.name,
      hash: 'made',
      import_hash: 'made',
      settings: settingsOf(folder, run),
      parents: [{ run: 'sft_s' }],
      created_at: time,
      attempts: [
        {
          attempt: 1,
          started_at: time,
          from_iteration: 0,
          command: ['run', `configs/${run.name}.jsonnet`],
          host: 'node1',
          pid: 1,
          slurm_job_id: null,
          devices: ['cpu'],
          versions: { editrl: '0.1.0' },
          import_hash: 'made',
        },
      ],
    })}\n`,
  );
  writeFileSync(
    paths.state,
    `${JSON.stringify({ state, iteration, num_iterations: numIterations, reason, stopped_early: false, heartbeat: time })}\n`,
  );
  writeFileSync(paths.consoleLog(1), run.log ?? `2026-01-01 00:00:00  ${run.name} begins\n`);
  writeMetrics(paths, run);
  return paths;
}

/** Writes metrics that have the size and names of a training run of the tiny world. */
function writeMetrics(paths: RunPaths, { lines, iteration, numIterations, level = 6, seed = 1, alarm }: MadeRun): void {
  const count = lines ?? iteration;
  const random = new RandomStream(seed, 'made metrics');
  const parts = ['edit_success', 'overedit', 'semantic_consistency', 'naturalness', 'artifacts', 'perceptual_quality'];
  let text = '';
  for (let at = 0; at <= count; at++) {
    const reached = level * (1 - Math.exp((-4 * at) / Math.max(1, numIterations)));
    const line: Record<string, number> = { iteration: at };
    if (at > 0) {
      line['reward/mean'] = reached + random.normal() * 0.2;
      for (const part of parts) line[`reward/viescore/${part}`] = reached + random.normal() * 0.4;
      for (const name of ['loss', 'kl', 'entropy', 'grad_norm', 'learning_rate']) {
        line[`policy/${name}`] = random.uniform();
      }
      for (const name of ['total', 'rollout', 'render', 'judge', 'reference', 'update', 'other']) {
        line[`time/${name}`] = random.uniform();
      }
      line['episode/length'] = 25;
      line['group/zero_spread'] = 0.25;
      line['tokens/s'] = 500 + random.uniform();
    }
    if (at > 0 && alarm !== undefined) {
      const { name, from, to = Infinity } = alarm;
      const active = at >= from && at <= to;
      line[`hack/${name}`] = (active ? 0.6 : 0.2) + random.normal() * 0.02;
      if (active) line[`alarm/${name}`] = 1;
    }
    if (at === 0 || at % 10 === 0 || at === count) {
      for (const how of ['sampled', 'greedy']) {
        line[`validation/${how}/mean`] = reached;
        line[`validation/${how}/stderr`] = 0.1;
      }
    }
    text += `${encodeLine(line).line}\n`;
    if (text.length < 1 << 20) continue;
    appendFileSync(paths.metrics, text);
    text = '';
  }
  appendFileSync(paths.metrics, text);
}

function settingsOf(
  folder: string,
  { name, numIterations, algorithm, reward, seed = 1 }: MadeRun,
): Record<string, unknown> {
  return {
    run_name: name,
    seed,
    num_iterations: numIterations,
    base_exp_dir: folder,
    task: 'image_edit_tokens',
    track: {
      log_episodes_every_n_iterations: 5,
      push_to_hub: null,
      wandb: null,
      alarms: { limits: {} },
    },
    launch: { backend: 'local', processes: 2, devices: null, max_restarts: 0, command: null },
    optimizer: { learning_rate: 3e-4, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0, max_grad_norm: 1 },
    rollout: { episodes_per_iteration: 128, generations_per_sample: 8, temperature: 1, top_p: 1, top_k: -1 },
    policy: {
      model: { run: 'sft_s', config: 'sft_s.jsonnet' },
      tokenizer: { run: 'tiny_vq', config: 'tiny_vq.jsonnet' },
      lora: null,
      engine: { type: 'onnx', provider: 'auto' },
    },
    validation: { every_n_iterations: 10, prompts: 128, temperature: 1, seed: 0 },
    data: {
      dir: 'data',
      train: [{ path: 'data/tiny/s/train', coefficient: null }],
      validation: [{ path: 'data/tiny/s/validation', coefficient: null }],
    },
    environment: { model: { run: 'tiny_vq', config: 'tiny_vq.jsonnet' } },
    checkpoint: { save_every_n_iterations: 10, keep_last: 2 },
    algorithm: { type: 'grpo', clip_range: null, kl_coeff: 3e-4, inner_epochs: 1, ...algorithm },
    reward: { mode: 'viescore', endpoint: 'embedded', max_unscored_fraction: 0.2, ...reward },
  };
}

export interface MadeEpisodes {
  readonly iteration: number;
  readonly prompts: number;
  readonly answers: number;
  readonly instruction?: (prompt: number) => string;
  readonly withImages: boolean;
}

/** Writes the episodes of an iteration, each with its images and judgements. */
export async function writeMadeEpisodes(paths: RunPaths, made: MadeEpisodes): Promise<void> {
  const { iteration, prompts, answers, withImages, instruction = (prompt) => `move the square ${prompt} cells` } = made;
  mkdirSync(paths.episodesDir, { recursive: true });
  mkdirSync(paths.mediaDir, { recursive: true });
  const lines: string[] = [];
  const judgements: string[] = [];
  for (let prompt = 0; prompt < prompts; prompt++) {
    for (let answer = 0; answer < answers; answer++) {
      const key = `${iteration}/${prompt}/${answer}`;
      const value = (iteration + prompt + answer) % 11;
      const unscored = answer === 3;
      const images = withImages
        ? {
            source: await store(paths, square(prompt, 0)),
            edited: await store(paths, square(prompt, answer + 1)),
            truth: await store(paths, square(prompt, 2)),
          }
        : {};
      const parts = {
        'viescore/semantic_consistency': value,
        'viescore/perceptual_quality': 9,
        'viescore/overall': value,
      };
      const outcome = unscored
        ? { kind: 'unscored', reason: 'unparseable', detail: 'no JSON in the answer', parts: {} }
        : { kind: 'scored', value, normalised: value / 10, parts };
      lines.push(
        JSON.stringify({
          iteration,
          key,
          sample: `samples/${String(prompt).padStart(6, '0')}.npz`,
          instruction: instruction(prompt),
          text: '',
          finished: true,
          outcome,
          log_prob: -5.5,
          advantage: (answer - (answers - 1) / 2) / 2,
          ...images,
        }),
      );
      judgements.push(
        JSON.stringify({
          key: `${key}/viescore_sc`,
          request_hash: 'made',
          model: 'editrl-rule-judge',
          text: `{"score":[${value},${value}],"reasoning":"Cell ${prompt} changed as asked."}`,
          problem: unscored ? 'unparseable' : null,
          scores: unscored ? [] : [value, value],
          attempts: 1,
          latency_ms: 120,
        }),
      );
    }
  }
  writeFileSync(paths.episodes(iteration), lines.map((line) => `${line}\n`).join(''));
  appendFileSync(paths.judgements, judgements.map((line) => `${line}\n`).join(''));
}

async function store(paths: RunPaths, image: RgbImage): Promise<string> {
  const png = await encodePng(image);
  const name = sha256(png);
  writeFileSync(join(paths.mediaDir, `${name}.png`), png);
  return name;
}

const SIZE = 48;
const COLORS = [
  [220, 36, 36],
  [36, 164, 60],
  [30, 70, 230],
  [160, 32, 200],
] as const;

/** A colored square at one of sixteen places. */
function square(color: number, place: number): RgbImage {
  const data = new Uint8Array(SIZE * SIZE * 3).fill(224);
  const [left, top] = [(place % 4) * 12, (Math.floor(place / 4) % 4) * 12];
  for (let y = top + 1; y < top + 11; y++) {
    for (let x = left + 1; x < left + 11; x++) data.set(COLORS[color % COLORS.length], (y * SIZE + x) * 3);
  }
  return { width: SIZE, height: SIZE, data };
}

/** Records an experiment whose cells are every combination of the values of its axes. */
export function recordGrid(
  folder: string,
  experiment: string,
  axes: Readonly<Record<string, readonly string[]>>,
): void {
  const combined = Object.entries(axes).reduce<Record<string, string>[]>(
    (all, [axis, values]) => all.flatMap((one) => values.map((value) => ({ ...one, [axis]: value }))),
    [{}],
  );
  const cells = combined.map((one) => ({
    run_name: [experiment, ...Object.entries(one).map(([axis, value]) => `${axis}-${value}`)].join('__'),
    axes: one,
    parents: [],
    differs: {},
    refused: null,
  }));
  writeExperiment(folder, { experiment, file: '/e.jsonnet', baseline: null, base_axis: null, cells, parents: [] });
}
