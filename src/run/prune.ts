/** The runs of a folder that `--fresh` or a sweep set aside, and which of them no run needs. */
import { existsSync } from 'node:fs';
import { listRuns } from './find.js';
import { recordedName, runsToKeep, type KeptRun, type RemovalWorld } from './remove.js';
import type { RunPaths } from './paths.js';

export interface SetAsideRuns {
  readonly unneeded: readonly RunPaths[];
  readonly kept: readonly KeptRun[];
}

/** Raises RunError when the folder cannot be read. */
export function findSetAside(baseExpDir: string, world: RemovalWorld): SetAsideRuns {
  let unneeded = existsSync(baseExpDir) ? listRuns([baseExpDir]).filter(isSetAside) : [];
  const kept: KeptRun[] = [];
  // A run that stays may start from another one, which then stays as well.
  for (let more = runsToKeep(unneeded, world); more.length > 0; more = runsToKeep(unneeded, world)) {
    kept.push(...more);
    unneeded = unneeded.filter((paths) => !more.some((each) => each.paths === paths));
  }
  return { unneeded, kept };
}

/** Whether it has the name that is given to what is set aside, and was not started under that name since. */
function isSetAside(paths: RunPaths): boolean {
  const name = /^(.+)\.old-\d+$/.exec(paths.runName)?.[1];
  return name !== undefined && recordedName(paths) === name;
}
