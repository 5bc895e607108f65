/** An autoencoder that diffusers saved; test/fixture_scripts/autoencoder.py makes it and what it is compared with. */
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import { readSafetensors } from '../../../../src/core/safetensors.js';
import { testFolders } from '../../../support/folder.js';

/** The fixture's folder, its expected tensors by name, and a function that copies it with another config.json. */
export function savedAutoencoder(name: string) {
  const fixture = fileURLToPath(new URL(`./fixtures/${name}`, import.meta.url));
  const newFolder = testFolders(name);
  const expected = readSafetensors(join(fixture, 'expected.safetensors'));
  const of = (tensor: string): Float32Array => must(expected.get(tensor), tensor).data;
  const changed = (change: Record<string, unknown>): string => {
    const folder = newFolder();
    cpSync(fixture, folder, { recursive: true });
    const path = join(folder, 'config.json');
    const config = JSON.parse(readFileSync(path, 'utf8')) as object;
    writeFileSync(path, JSON.stringify({ ...config, ...change }));
    return folder;
  };
  return { fixture, of, changed, newFolder };
}

/** The largest difference, relative to the largest wanted value. */
export function worst(found: ArrayLike<number>, wanted: ArrayLike<number>): number {
  expect(found.length).toBe(wanted.length);
  const largest = Math.max(...Array.from(wanted, Math.abs));
  return Math.max(...Array.from(wanted, (value, i) => Math.abs(value - found[i]))) / largest;
}
