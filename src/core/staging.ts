/** Folders in which something is built before it is renamed into place. */
import { randomUUID } from 'node:crypto';
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { processStart } from './process_start.js';

/** The path of such a folder, which no other process gives, on whatever machine. */
export function stagingFolder(parent: string, prefix: string): string {
  return join(parent, `${prefix}${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`);
}

/** Whether such a folder is of a process of this machine that is gone; whether those of others live is not known here. */
export function isAbandoned(name: string, prefix: string): boolean {
  const [, host, pid] = /^(.*)-(\d+)-[0-9a-f]{8}$/.exec(name.startsWith(prefix) ? name.slice(prefix.length) : '') ?? [];
  return host === hostname() && processStart(Number(pid)) === null;
}

/** Removes half-made folders of processes of this machine that are gone. */
export function sweepStaging(parent: string, prefix: string): void {
  if (!existsSync(parent)) return;
  for (const name of readdirSync(parent)) {
    if (isAbandoned(name, prefix)) rmSync(join(parent, name), { recursive: true, force: true });
  }
}
