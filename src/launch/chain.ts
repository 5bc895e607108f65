/** The configs of the runs that a run starts from. */
import { existsSync } from 'node:fs';
import { growable } from '../config/hash.js';
import { loadReferenced, referencedFile, type LoadedConfig } from '../config/load.js';
import type { RunReference } from '../config/schema/model.js';
import { dependencies } from '../config/models.js';
import { ConfigError, RunError } from '../core/errors.js';
import { RunPaths } from '../run/paths.js';
import { recordedConfig } from '../run/recorded_config.js';
import { readRecord } from '../run/record.js';
import { readState } from '../run/state.js';

export interface Parent {
  /** Null for a run that is used as it is: it is finished or its checkpoint is pinned, and there is no config to compare it with. */
  readonly config: LoadedConfig | null;
  readonly finished: boolean;
  /** A note to show to the user. */
  readonly note?: string;
}

/**
 * The config of a run that another run starts from.
 * The parents of a config file come from the files that it names, even if they are finished. Claiming a parent with
 * other settings then fails. An extended parent keeps its length. A run that continues from its record keeps its
 * original parents. Raises RunError if such a parent is gone, and the errors of reading a config.
 */
export async function parentOf(
  config: LoadedConfig,
  reference: RunReference,
  load: typeof loadReferenced = loadReferenced,
): Promise<Parent> {
  const paths = new RunPaths(config.settings.base_exp_dir, reference.run);
  const finished = readState(paths)?.state === 'finished';
  if (config.fromRecord !== true) {
    const known = !finished || existsSync(referencedFile(config, reference));
    return known
      ? { ...withRecordedLength(await load(config, reference), paths), finished }
      : { config: null, finished };
  }
  if (finished) return { config: null, finished };
  const record = readRecord(paths);
  if (record === null) {
    throw new RunError(`${config.settings.run_name} starts from the run ${reference.run}, which no longer exists`, {
      where: paths.dir,
      next: 'Restore the folder, or repeat the `editrl run` or `editrl sweep` command that made both. The attempts in run.json record it.',
    });
  }
  // A run with a pinned checkpoint does not wait for its parent, which may still be training.
  const own = readRecord(RunPaths.of(config.settings));
  const pinned = own?.parents.some(({ run, iteration }) => run === reference.run && iteration !== undefined) === true;
  return { config: pinned ? null : recordedConfig(paths, record, { trust: config.trust }), finished };
}

/** A run of a chain. */
export interface Link extends Parent {
  readonly config: LoadedConfig;
  /** The run that starts from it. Null for the last. */
  readonly child: string | null;
}

/**
 * A run and all its ancestors, ancestors first, each once. Runs in `made` are left out. Raises ConfigError if runs
 * start from each other in a cycle, and the errors of `parentOf`.
 */
export async function chainOf(
  config: LoadedConfig,
  made: ReadonlySet<string> = new Set(),
  load: typeof loadReferenced = loadReferenced,
): Promise<Link[]> {
  const links = new Map<string, Link>();
  const add = async (link: Link, ancestry: readonly string[]): Promise<void> => {
    const { settings } = link.config;
    const names = [...ancestry, settings.run_name];
    for (const reference of dependencies(settings)) {
      if (made.has(reference.run) || links.has(reference.run)) continue;
      if (names.includes(reference.run)) {
        throw new ConfigError(`runs start from each other: ${[...names, reference.run].join(' -> ')}`, {
          where: link.config.file,
        });
      }
      const { config: parent, ...rest } = await parentOf(link.config, reference, load);
      if (parent !== null) await add({ ...rest, config: parent, child: settings.run_name }, names);
    }
    links.set(settings.run_name, link);
  };
  await add({ config, finished: false, child: null }, []);
  return [...links.values()];
}

/** The config of a parent, with the number of iterations in its record if the run was extended. */
function withRecordedLength(config: LoadedConfig, paths: RunPaths): Pick<Parent, 'config' | 'note'> {
  const { settings } = config;
  const recorded = Number(readRecord(paths)?.settings['num_iterations'] ?? 0);
  if (recorded <= settings.num_iterations || !growable(settings)) return { config };
  return {
    config: { ...config, settings: { ...settings, num_iterations: recorded } },
    note: `${settings.run_name} was extended to ${recorded} iterations; its config has ${settings.num_iterations}`,
  };
}
