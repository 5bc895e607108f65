/** A run directory that a test fills as a training would. */
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { MetricsJournal } from '../../../src/run/metrics.js';
import { rewindTo } from '../../../src/run/journal.js';
import { RunPaths } from '../../../src/run/paths.js';
import { readRecord, writeRecord, type RunRecord } from '../../../src/run/record.js';
import { writeState, type RunStateName } from '../../../src/run/state.js';
import { must } from '../../../src/core/errors.js';
import { track, type TrackSettings } from '../../../src/config/schema/track.js';

export const STARTED = '2026-01-01T00:00:00.000Z';

/** A training that writes what it is told. */
export class FakeRun {
  readonly paths: RunPaths;
  #metrics: MetricsJournal;
  #attempt = 1;

  constructor(base: string, name = 'run', settings: Record<string, unknown> = {}) {
    this.paths = new RunPaths(base, name);
    mkdirSync(this.paths.dir, { recursive: true });
    writeRecord(this.paths, {
      format: 1,
      run_name: name,
      hash: 'h',
      import_hash: 'i',
      settings: { task: 'text_answers', run_name: name, seed: 3, ...settings },
      parents: [],
      created_at: STARTED,
      attempts: [attempt(1, 0)],
    });
    this.state('running', 0);
    this.#metrics = new MetricsJournal(this.paths);
  }

  get record(): RunRecord {
    return must(readRecord(this.paths), 'the record');
  }

  iteration(iteration: number, metrics: Record<string, number> = {}): void {
    this.#metrics.append(iteration, { 'reward/mean': iteration / 10, 'time/total': 0.5, ...metrics });
  }

  iterations(from: number, to: number): void {
    for (let i = from; i <= to; i++) this.iteration(i);
  }

  /** Goes on from a checkpoint, as after a crash. */
  goOnFrom(iteration: number): void {
    this.#metrics.close();
    rewindTo(this.paths, iteration);
    this.#attempt++;
    const { record } = this;
    writeRecord(this.paths, { ...record, attempts: [...record.attempts, attempt(this.#attempt, iteration)] });
    this.#metrics = new MetricsJournal(this.paths);
  }

  replace(iteration: number, metrics: Record<string, number>): void {
    this.#metrics.replace(iteration, metrics);
  }

  says(message: string, level = 'info'): void {
    mkdirSync(this.paths.attemptLogsDir(this.#attempt), { recursive: true });
    const entry = { level, message, timestamp: '2026-01-01T00:00:01.250Z', rank: 0, attempt: this.#attempt };
    appendFileSync(this.paths.rankLog(this.#attempt, 0), `${JSON.stringify(entry)}\n`);
  }

  episodes(iteration: number, episodes: readonly object[], path = this.paths.episodes(iteration)): void {
    mkdirSync(this.paths.episodesDir, { recursive: true });
    writeFileSync(path, episodes.map((one) => `${JSON.stringify(one)}\n`).join(''));
  }

  heldOutEpisodes(iteration: number, episodes: readonly object[]): void {
    this.episodes(iteration, episodes, this.paths.heldOutEpisodes(iteration));
  }

  state(state: RunStateName, iteration: number): void {
    writeState(this.paths, { state, iteration, num_iterations: 500, reason: null, stopped_early: false });
  }
}

function attempt(number: number, from: number): RunRecord['attempts'][number] {
  return {
    attempt: number,
    started_at: new Date(Date.parse(STARTED) + (number - 1) * 3_600_000).toISOString(),
    from_iteration: from,
    command: [],
    host: 'machine',
    pid: 1,
    slurm_job_id: null,
    devices: [],
    versions: { editrl: '0.1.0' },
    import_hash: 'i',
  };
}

export function trackSettings(given: object): TrackSettings {
  return track.parse(given);
}
