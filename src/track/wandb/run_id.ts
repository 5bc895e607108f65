/**
 * Decides which W&B run a run directory is sent to: its run_name, unless WANDB_RUN_ID named another when it was started. The variable only lives in a
 * shell, so the id is stored in the run directory, where a resume, `editrl sync` and a trainer's own SDK find it.
 */
import { mkdirSync } from 'node:fs';
import { ConfigError, RunError } from '../../core/errors.js';
import { writeFileAtomic } from '../../core/files.js';
import { readPlainText } from '../../core/plain_file.js';
import type { RunPaths } from '../../run/paths.js';

const VARIABLE = 'WANDB_RUN_ID';
const MOST_NOTED_BYTES = 1024;
/** W&B's rule for ids. */
const ID = /^[^/\\#?%:\s]{1,128}$/;

/** The id in WANDB_RUN_ID; null if it is not set. Raises ConfigError for an id that W&B does not accept. */
export function wandbIdOfEnvironment(env: NodeJS.ProcessEnv): string | null {
  const id = env[VARIABLE]?.trim() || null;
  if (id === null || ID.test(id)) return id;
  throw new ConfigError(`found '${id}'; allowed: 1 to 128 letters without blanks and / \\ # ? % :`, {
    where: VARIABLE,
    next: 'Unset it to have the run under its run_name.',
  });
}

/** Stores the id for this and every later attempt. Raises RunError when the disk refuses. */
export function noteWandbId(paths: RunPaths, id: string): void {
  mkdirSync(paths.trackDir, { recursive: true });
  writeFileAtomic(paths.wandbId, `${id}\n`);
}

/** The id stored for the run; null if there is none. Raises RunError for a file without a valid id. */
export function notedWandbId(paths: RunPaths): string | null {
  const id = readPlainText(paths.wandbId, MOST_NOTED_BYTES)?.trim() ?? null;
  if (id === null || ID.test(id)) return id;
  throw new RunError('no id of a run in W&B', {
    where: paths.wandbId,
    next: 'Remove the file to have the run under its run_name.',
  });
}
