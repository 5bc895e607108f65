/** A checkpoint as files of a folder. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CheckpointFiles } from '../../src/models/files.js';

/** Writes the files of a checkpoint into a folder, which it makes where it is not there, and returns it. */
export function writeCheckpoint(folder: string, files: CheckpointFiles): string {
  mkdirSync(folder, { recursive: true });
  for (const [name, content] of Object.entries(files)) {
    const whole = typeof content === 'string' || content instanceof Uint8Array ? content : Buffer.concat(content);
    writeFileSync(join(folder, name), whole);
  }
  return folder;
}
