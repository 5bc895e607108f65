/** Run directories with what a training leaves, made without one. */
import { mkdirSync, writeFileSync } from 'node:fs';
import type { LoadedConfig } from '../../../src/config/load.js';
import { claimRun } from '../../../src/run/claim/claim.js';
import { claimRequest } from '../../../src/run/claim/claim_request.js';
import { MetricsJournal } from '../../../src/run/metrics.js';
import type { RunPaths } from '../../../src/run/paths.js';
import { saveContactSheet } from '../../../src/run/report/contact_sheet.js';

/** A finished run of a config whose held-out reward went from 3 to `after`. */
export function finishedRun(config: LoadedConfig, after: number, iterations = 40): RunPaths {
  const handle = claimRun(
    claimRequest(config, { command: ['run', 'x'], versions: { editrl: '0' }, parents: [], devices: [] }),
  );
  const journal = new MetricsJournal(handle.paths);
  for (let i = 0; i <= iterations; i++) journal.append(i, measured(i, 3 + ((after - 3) * i) / iterations));
  journal.close();
  handle.setState({ state: 'finished', iteration: config.settings.num_iterations });
  handle.release();
  return handle.paths;
}

function measured(iteration: number, reward: number): Record<string, number> {
  const heldOut = {
    'validation/sampled/mean': reward,
    'validation/sampled/stderr': 0.2,
    'validation/greedy/mean': reward + 0.5,
    'validation/s/sampled/mean': reward,
  };
  const training = {
    'reward/mean': reward + Math.sin(iteration) / 4,
    'reward/viescore/overedit': reward,
    'reward/viescore/naturalness': 10,
    'reward/unscored/timeout': 0,
    'policy/kl': iteration / 1000,
    'policy/entropy': 2 - iteration / 100,
    'policy/grad_norm': 0.5 + Math.cos(iteration) / 10,
    'episode/length': 25 + Math.sin(iteration),
    'hack/edge_density': 0.2 + iteration / 1000,
    ...(iteration > 5 && iteration < 9 ? { 'alarm/edge_density': 1 } : {}),
    'time/total': 1,
    'time/rollout': 0.4,
    'time/judge': 0.2,
    'time/update': 0.3,
    'time/other': 0.1,
    'tokens/s': 3000,
  };
  return { ...(iteration % 10 === 0 ? heldOut : {}), ...(iteration > 0 ? training : {}) };
}

/** Contact sheets of three evaluations. */
export async function withSheets(paths: RunPaths): Promise<void> {
  const image = { width: 2, height: 2, data: new Uint8Array(12).fill(200) };
  const row = { instruction: 'remove it', source: image, edit: image, truth: image, score: '7.0', words: null };
  for (const iteration of [0, 20, 40]) await saveContactSheet(paths, { iteration, manner: 'sampled' }, [row]);
}

/** One held-out answer in words for each text. */
export function withAnswers(paths: RunPaths, iteration: number, answers: readonly string[]): void {
  mkdirSync(paths.episodesDir, { recursive: true });
  const lines = answers.map((text, at) => ({
    key: `validation/${iteration}/s/sampled/${at}`,
    sample: `sample ${at}`,
    instruction: text,
    finished: true,
    text,
    outcome: { kind: 'scored', value: at, normalised: at / 10, parts: {} },
  }));
  writeFileSync(paths.heldOutEpisodes(iteration), lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
}
