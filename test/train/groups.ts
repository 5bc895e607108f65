/** Process groups inside one process, over loopback. */
import {
  openProcessGroup,
  soloGroup,
  type OpenOptions,
  type ProcessGroup,
} from '../../src/core/group/process_group.js';
import { freePort } from '../../src/launch/processes/supervise.js';

export function rankEnv(rank: number, size: number, port: number, token = 'secret'): NodeJS.ProcessEnv {
  return {
    RANK: String(rank),
    WORLD_SIZE: String(size),
    MASTER_ADDR: '127.0.0.1',
    MASTER_PORT: String(port),
    EDITRL_GROUP_TOKEN: token,
  };
}

export async function openGroups(size: number, options?: OpenOptions): Promise<ProcessGroup[]> {
  if (size === 1) return [soloGroup()];
  const port = await freePort();
  return Promise.all(Array.from({ length: size }, (_, rank) => openProcessGroup(rankEnv(rank, size, port), options)));
}

/** Does the same on every rank at once; the groups are closed afterwards. */
export async function onRanks<T>(size: number, work: (group: ProcessGroup) => Promise<T>): Promise<T[]> {
  const groups = await openGroups(size);
  try {
    return await Promise.all(groups.map(work));
  } finally {
    for (const group of groups) group.close();
  }
}
