/**
 * Which run of W&B a run directory is sent to. That is its run_name, unless WANDB_RUN_ID named another when it was started. The variable
 * stands in a shell, the id in the run directory: a resume, `editrl sync` and a trainer's own SDK find it there.
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

/** The id that WANDB_RUN_ID names; null where it names none. Raises ConfigError for one that W&B does not take. */
export function wandbIdOfEnvironment(env: NodeJS.ProcessEnv): string | null {
  const id = env[VARIABLE]?.trim() || null;
  if (id === null || ID.test(id)) return id;
  throw new ConfigError(`found '${id}'; allowed: 1 to 128 letters without blanks and / \\ # ? % :`, {
    where: VARIABLE,
    next: 'Unset it to have the run under its run_name.',
  });
}

/** Notes the id for this and every later attempt. Raises RunError when the disk refuses. */
export function noteWandbId(paths: RunPaths, id: string): void {
  mkdirSync(paths.trackDir, { recursive: true });
  writeFileAtomic(paths.wandbId, `${id}\n`);
}

/** The id that was noted for the run; null where none was. Raises RunError for a file that holds no id. */
export function notedWandbId(paths: RunPaths): string | null {
  const id = readPlainText(paths.wandbId, MOST_NOTED_BYTES)?.trim() ?? null;
  if (id === null || ID.test(id)) return id;
  throw new RunError('no id of a run in W&B', {
    where: paths.wandbId,
    next: 'Remove the file to have the run under its run_name.',
  });
}
