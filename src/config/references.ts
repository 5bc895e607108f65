/** Finds the configs of the runs that a run starts from. */
import { existsSync } from 'node:fs';
import { dirname, relative, resolve } from 'node:path';
import type { Problem } from '../schema/rules.js';
import { getPath, setPath } from '../schema/paths.js';
import { isObject } from '../schema/walk.js';
import { displayPath } from './jsonnet.js';
import { readJsonnet } from './jsonnet_text.js';
import { modelKeys } from './models.js';

/** A reference to the config that makes another run, in settings that are not validated yet. */
export interface FoundReference {
  readonly key: string;
  readonly run: string;
  /** Absolute path of the config; null if there is no such file. */
  readonly config: string | null;
}

/**
 * Makes the `config` of every `{run, config}` in canonical settings relative to `file`, and returns what they refer to. A path is relative to the file
 * that writes it out, of these to one of `roots` before one that they import; a path that no file writes out is relative to `file`, or else to the only
 * other file whose folder has it. `value` is changed. Returns a problem for a path that may be several files.
 */
export function placeReferences(
  value: Record<string, unknown>,
  file: string,
  roots: readonly string[],
  sources: ReadonlyMap<string, string>,
): { readonly references: readonly FoundReference[]; readonly problems: readonly Problem[] } {
  const references: FoundReference[] = [];
  const problems: Problem[] = [];
  for (const key of modelKeys(value)) {
    const reference = getPath(value, key);
    if (!isObject(reference)) continue;
    const { run, config } = reference;
    if (typeof run !== 'string' || typeof config !== 'string') continue;
    const found = knownFiles(config, file, roots, sources);
    if (found.length > 1) {
      const message = `found '${config}', which may be any of ${found.map(displayPath).join(', ')}; allowed: a path to one of them`;
      problems.push({ key: `${key}.config`, message });
      continue;
    }
    const target = found[0] ?? null;
    if (target !== null && target !== resolve(dirname(file), config)) {
      setPath(value, key, { ...reference, config: relative(dirname(resolve(file)), target) });
    }
    references.push({ key, run, config: target });
  }
  return { references, problems };
}

/** By texts: the cells of a matrix name few configs, and share their texts. */
const known = new WeakMap<ReadonlyMap<string, string>, Map<string, readonly string[]>>();

function knownFiles(
  config: string,
  file: string,
  roots: readonly string[],
  sources: ReadonlyMap<string, string>,
): readonly string[] {
  const ofTexts = known.get(sources) ?? new Map<string, readonly string[]>();
  known.set(sources, ofTexts);
  const asked = JSON.stringify([config, file, roots]);
  const found = ofTexts.get(asked) ?? find(config, file, roots, sources);
  ofTexts.set(asked, found);
  return found;
}

function find(
  config: string,
  file: string,
  roots: readonly string[],
  sources: ReadonlyMap<string, string>,
): readonly string[] {
  const own = roots.map((root) => resolve(root));
  const writing = [...sources].filter(
    ([, text]) => text.includes(config) && readJsonnet(text).strings.includes(config),
  );
  const files = writing.map(([path]) => path);
  const beside = [resolve(file)];
  const groups = [
    files.filter((path) => own.includes(path)),
    files.filter((path) => !own.includes(path)),
    beside,
    [...sources.keys()],
  ];
  for (const group of groups) {
    const targets = [...new Set(group.map((path) => resolve(dirname(path), config)))].filter(existsSync);
    if (targets.length > 0) return targets;
  }
  return [];
}
