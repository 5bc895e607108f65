/** Images of a run, named by their content: the same picture is stored once. */
import { renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { encodePng, sha256, type RgbImage } from '../core/image.js';
import { diskError, makeFolder } from '../core/files.js';
import type { RunPaths } from './paths.js';

/** Stores an image as PNG and returns the SHA-256 of the file, which is its name. Raises RunError when the disk refuses. */
export async function storeImage(paths: RunPaths, image: RgbImage): Promise<string> {
  return storePng(paths, await encodePng(image));
}

/** Stores a finished PNG file and returns its name. */
export function storePng(paths: RunPaths, png: Uint8Array): string {
  const name = sha256(png);
  const path = paths.media(name);
  // Compares the size too: after a power failure a file may exist but be empty.
  if (statSync(path, { throwIfNoEntry: false })?.size === png.length) return name;
  const temporary = `${path}.${process.pid}.tmp`;
  try {
    makeFolder(paths.mediaDir);
    writeFileSync(temporary, png);
    renameSync(temporary, path);
  } catch (cause) {
    rmSync(temporary, { force: true });
    throw diskError(path, cause);
  }
  return name;
}
