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
  /** Null if a run is taken as it is: it is finished or pinned, and there is nothing to compare it with. */
  readonly config: LoadedConfig | null;
  readonly finished: boolean;
  /** A note to show to the user. */
  readonly note?: string;
}

/**
 * The config of a run that another starts from. The parents of a config file come from the files that it names, even if they are finished, so that a
 * parent made with other settings is refused when it is claimed; one that was extended keeps its length. A run that continues from its own record
 * keeps the parents that it began with: neither its config file nor, for a cell of an experiment, the axes that reached them are evaluated again.
 * Raises RunError when such a parent is gone, and whatever reading a config raises.
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
    throw new RunError(
      `${config.settings.run_name} starts from the run ${reference.run}, which is not there any more`,
      {
        where: paths.dir,
        next: 'Bring the folder back, or give again the `editrl run` or `editrl sweep` command that made both (the attempts in run.json have it).',
      },
    );
  }
  // A run that has a checkpoint of it pinned does not wait: the parent may be training on.
  const own = readRecord(RunPaths.of(config.settings));
  const pinned = own?.parents.some(({ run, iteration }) => run === reference.run && iteration !== undefined) === true;
  return { config: pinned ? null : recordedConfig(paths, record, { trust: config.trust }), finished };
}

/** A run of a chain. */
export interface Link extends Parent {
  readonly config: LoadedConfig;
  /** The run that starts from it; null for the last. */
  readonly child: string | null;
}

/**
 * A run after everything it starts from, each run once. Runs in `made` are taken as they are. Raises ConfigError when runs start from each other in a
 * cycle, and whatever `parentOf` raises.
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
        throw new ConfigError(`runs need each other: ${[...names, reference.run].join(' -> ')}`, {
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

/** The config of a parent with the number of iterations in its folder, if it was extended beyond what its file says. */
function withRecordedLength(config: LoadedConfig, paths: RunPaths): Pick<Parent, 'config' | 'note'> {
  const { settings } = config;
  const recorded = Number(readRecord(paths)?.settings['num_iterations'] ?? 0);
  if (recorded <= settings.num_iterations || !growable(settings)) return { config };
  return {
    config: { ...config, settings: { ...settings, num_iterations: recorded } },
    note: `${settings.run_name} was made longer than its config says: ${recorded} iterations instead of ${settings.num_iterations}`,
  };
}
