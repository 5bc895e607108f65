/** Writes the files of a checkpoint into a folder, which it makes. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CheckpointFiles } from '../../../src/models/files.js';

export function writeFiles(folder: string, files: CheckpointFiles): void {
  mkdirSync(folder, { recursive: true });
  for (const [name, content] of Object.entries(files)) {
    const whole = typeof content === 'string' || content instanceof Uint8Array ? content : Buffer.concat(content);
    writeFileSync(join(folder, name), whole);
  }
}
