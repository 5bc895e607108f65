/** Forks a run: creates a new run from a checkpoint and the history up to it. */
import {
  copyFileSync,
  cpSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { CheckpointError, must, RunError } from '../../core/errors.js';
import { resultHash } from '../../config/hash.js';
import { diskError, syncDirectory } from '../../core/files.js';
import { scanLines } from '../../core/log.js';
import { changedSettings, readRecord, settingsAt, writeRecord } from '../record.js';
import { checkpointProblems, listCheckpoints } from '../checkpoints.js';
import { listEpisodeFiles } from '../episodes.js';
import { parseLine } from '../journal.js';
import { iterationOfKey } from '../exchanges.js';
import { checkRunName, RunPaths } from '../paths.js';
import { FORKING } from './pins.js';
import { recordedSettings } from '../recorded_config.js';
import { writeState } from '../state.js';
import { SERVER_LOCK, withServerEnded } from './training_server_lock.js';

/** Errors of file systems without hard links, or for links across file systems. The file is then copied. */
const NO_LINK = ['EXDEV', 'EPERM', 'EMLINK', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EACCES'];

/**
 * Creates the run `name` next to `source` from the checkpoint of an iteration, after checking its manifest. The fork gets the metrics, episodes, images
 * and exchanges up to that iteration, the saved state of the source's own training server, and a record of its origin with the settings at that
 * iteration. The source is only read, so it may be running unless it runs such a server. The folder appears complete or not at all. Raises
 * CheckpointError if there is no valid checkpoint, RunError if the name is in use, for a disk error, or while that server runs.
 */
export function forkRun(source: RunPaths, iteration: number, name: string): RunPaths {
  checkRunName(name);
  const target = new RunPaths(source.baseExpDir, name);
  if (existsSync(target.dir)) {
    throw new RunError(`run '${name}' already exists`, {
      where: target.dir,
      next: 'Choose another name with --as, or move the folder away.',
    });
  }
  const record = must(readRecord(source), `the record of run ${source.runName}`);
  if (!listCheckpoints(source).includes(iteration)) throw noSuchCheckpoint(source, iteration);
  // The temporary name begins with a dot, so an incomplete fork is never a run. Removes leftovers of killed forks.
  const place = FORKING + name;
  const temporary = join(source.baseExpDir, place, name);
  const half = RunPaths.ofDirectory(temporary);
  try {
    rmSync(join(source.baseExpDir, place), { recursive: true, force: true });
    linkFolder(source.checkpoint(iteration), half.checkpoint(iteration));
    const problems = checkpointProblems(half.checkpoint(iteration), iteration);
    if (problems.length > 0) throw notWhole(source, iteration, problems);
    copyLines(source.metrics, half.metrics, (line) => Number(line['iteration']) <= iteration);
    for (const files of ['judgements', 'answers', 'pictures'] as const) {
      copyLines(source[files], half[files], ({ key }) => iterationOfKey(String(key)) <= iteration);
    }
    linkEpisodes(source, half, iteration);
    linkImages(source, half);
    copyServed(source, half);
    const { settings, undone } = settingsAt(record, iteration);
    const changes = changedSettings(record).filter((change) => change.iteration < iteration);
    writeRecord(half, {
      ...record,
      run_name: name,
      settings: { ...settings, run_name: name },
      hash: undone.length === 0 ? record.hash : resultHash(recordedSettings(settings)),
      fork: { run: source.runName, iteration, hash: record.hash, ...(changes.length === 0 ? {} : { changes }) },
      created_at: new Date().toISOString(),
      attempts: [],
    });
    writeState(half, {
      state: 'interrupted',
      iteration,
      num_iterations: Math.max(iteration, Number(record.settings['num_iterations'])),
      reason: `forked from ${source.runName} at iteration ${iteration}`,
      stopped_early: false,
    });
    renameSync(temporary, target.dir);
    syncDirectory(source.baseExpDir);
    return target;
  } catch (cause) {
    if (cause instanceof CheckpointError || cause instanceof RunError) throw cause;
    throw diskError(target.dir, cause);
  } finally {
    rmSync(join(source.baseExpDir, place), { recursive: true, force: true });
  }
}

function noSuchCheckpoint(source: RunPaths, iteration: number): CheckpointError {
  return new CheckpointError(`run '${source.runName}' has no checkpoint of iteration ${iteration}`, {
    where: source.checkpointsDir,
    next: otherCheckpoints(source, iteration),
  });
}

function notWhole(source: RunPaths, iteration: number, problems: readonly string[]): CheckpointError {
  return new CheckpointError(`the checkpoint of iteration ${iteration} is damaged: ${problems.join('; ')}`, {
    where: source.checkpoint(iteration),
    next: otherCheckpoints(source, iteration),
  });
}

function otherCheckpoints(source: RunPaths, iteration: number): string {
  const there = listCheckpoints(source).filter((each) => each !== iteration);
  if (there.length === 0) return 'There are no other checkpoints.';
  return `Checkpoints: ${there.join(', ')}. checkpoint.keep_every_n_iterations sets which ones are kept.`;
}

/** Links a file. Runs replace their files and never rewrite them, so two runs can share one. */
function linkOrCopy(from: string, to: string): void {
  try {
    linkSync(from, to);
  } catch (cause) {
    if (!NO_LINK.includes((cause as NodeJS.ErrnoException).code ?? '')) throw cause;
    copyFileSync(from, to);
  }
}

/** Links a folder's files into another folder. Replacing them there does not change the originals. Raises the system's errors. */
export function linkFolder(from: string, to: string): void {
  mkdirSync(to, { recursive: true });
  for (const file of readdirSync(from)) linkOrCopy(join(from, file), join(to, file));
}

function copyLines(from: string, to: string, keep: (line: Record<string, unknown>) => boolean): void {
  if (!existsSync(from)) return;
  const kept: string[] = [];
  let number = 0;
  scanLines(from, (text) => {
    number++;
    if (keep(parseLine(text, from, number))) kept.push(`${text}\n`);
  });
  writeFileSync(to, kept.join(''));
}

function linkEpisodes(source: RunPaths, target: RunPaths, iteration: number): void {
  mkdirSync(target.episodesDir, { recursive: true });
  for (const { path, ...file } of listEpisodeFiles(source)) {
    if (file.iteration <= iteration) linkOrCopy(path, join(target.episodesDir, basename(path)));
  }
}

/** Copies the saved state of a training server, which the checkpoints refer to. The server must have ended because it changes its files. */
function copyServed({ trainingServerDir: from }: RunPaths, { trainingServerDir: to }: RunPaths): void {
  if (!existsSync(from)) return;
  withServerEnded(from, () => {
    cpSync(from, to, { recursive: true, filter: (path) => path !== join(from, SERVER_LOCK) });
  });
}

/** Links the images that the episodes of `target` name, and images from an images server. */
function linkImages(source: RunPaths, target: RunPaths): void {
  mkdirSync(target.mediaDir, { recursive: true });
  const link = (text: string): void => {
    for (const [hash] of text.matchAll(/\b[0-9a-f]{64}\b/g)) {
      if (!existsSync(source.media(hash)) || existsSync(target.media(hash))) continue;
      linkOrCopy(source.media(hash), target.media(hash));
    }
  };
  for (const { path } of listEpisodeFiles(target)) scanLines(path, link);
  scanLines(target.pictures, link);
}
