/** Where the weights that a server samples with are kept: one version after the other, in a folder that it sees. */
import { closeSync, mkdirSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { Deadline } from '../../../core/deadline.js';
import { diskError } from '../../../core/files.js';
import type { CheckpointContent, CheckpointFiles } from '../../../models/files.js';

/** How a request names the weights. */
export interface ServedAs {
  readonly model: string;
  /** The name that the server says to have sampled under; null where `model` alone names the weights. */
  readonly version: string | null;
}

export interface WeightsShelf {
  /** Removes what an earlier attempt left, here and on the server. */
  clear(within: Deadline): Promise<void>;
  /** The name of weights by their version and the SHA-256 of their files. */
  nameOf(version: string, digest: string): string;
  /** Writes a folder and has the server load it. Raises RunError when the disk refuses, EndpointError when the server does. */
  add(name: string, files: CheckpointFiles, within: Deadline): Promise<void>;
  /** Call again after the server has lost them in a restart. */
  load(name: string, within: Deadline): Promise<void>;
  remove(name: string, within: Deadline): Promise<void>;
  servedAs(name: string): ServedAs;
}

/** Where the server finds the folder of these weights, below what it calls theirs. */
export function pathOnServer(seenAs: string, name: string): string {
  return `${seenAs.replace(/\/+$/, '')}/${name}`;
}

/** Writes a folder that is complete as soon as it has its name. Raises RunError when the disk refuses. */
export function writeFolder(folder: string, files: CheckpointFiles): void {
  const unfinished = `${folder}.partial`;
  try {
    rmSync(unfinished, { recursive: true, force: true });
    mkdirSync(unfinished, { recursive: true });
    for (const [name, content] of Object.entries(files)) writeContent(join(unfinished, name), content);
    rmSync(folder, { recursive: true, force: true });
    renameSync(unfinished, folder);
  } catch (cause) {
    rmSync(unfinished, { recursive: true, force: true });
    throw diskError(folder, cause);
  }
}

/** Piece by piece: all weights of a model may be more than a buffer holds. */
function writeContent(path: string, content: CheckpointContent): void {
  const pieces =
    typeof content === 'string' ? [Buffer.from(content)] : content instanceof Uint8Array ? [content] : content;
  const file = openSync(path, 'w');
  try {
    for (const bytes of pieces) {
      let done = 0;
      while (done < bytes.length) done += writeSync(file, bytes, done, Math.min(bytes.length - done, 2 ** 30));
    }
  } finally {
    closeSync(file);
  }
}
