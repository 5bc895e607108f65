/** The tiny world in words, as this recipe's dataset and vocabulary. */
import { join } from 'node:path';
import { pathIn } from '../../tiny/world/parts.js';
import { captionVocabulary, makeTinyWords, tinyWords, type WordOptions } from '../../tiny/world/words.js';
import type { WorldWords } from '../open_vocabulary.js';
import type { TextSettings } from './settings.js';

/** Makes the captions where a config asks for them and they are not there yet. */
export async function makeData(
  settings: TextSettings,
  _resolveRun: unknown,
  say: (line: string) => void,
): Promise<void> {
  const world = worldOf(settings);
  if (world === null) return;
  if (tinyWords(world.root, world.options) === null) say(`making the tiny world's captions in ${world.root}`);
  await makeTinyWords(world.root, world.options);
}

/** Where a dataset lies that a config names by its path. */
export function placesOf(settings: TextSettings): (path: string) => string {
  const world = worldOf(settings);
  if (world === null) return (path) => path;
  const folder = tinyWords(world.root, world.options);
  return (path) => pathIn(folder, world.root, path);
}

function worldOf({ data: { dir, tiny } }: TextSettings): {
  readonly root: string;
  readonly options: WordOptions;
} | null {
  if (tiny === null) return null;
  const { labelled, train, validation } = tiny.counts;
  return { root: join(dir, tiny.folder), options: { seed: tiny.seed, sizes: { labelled, train, validation } } };
}

/** The words of the tiny world and the settings' own texts, for a model from random weights. */
export function wordsOf({ policy, prompt }: Pick<TextSettings, 'policy' | 'prompt'>): WorldWords {
  const texts = [prompt.template ?? '', policy.assistant_prefill].map((text) => text.replaceAll(/\{[^}]*\}/g, ' '));
  return { words: captionVocabulary(), texts, special: [] };
}
