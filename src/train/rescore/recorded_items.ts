/**
 * Turns recorded episodes into items for a reward, with images from media/ or generated again from the recorded
 * answers.
 */
import { existsSync } from 'node:fs';
import { EditrlError } from '../../core/errors.js';
import { decodeImage, type RgbImage, imageId } from '../../core/images/image.js';
import { readPlain } from '../../core/plain_file.js';
import { isHeldOut, type JudgeItem } from '../../rewards/score/types.js';
import { parseHeldOutKey, readRecordedEpisodes, type EpisodeFile, type RecordedEpisode } from '../../run/episodes.js';
import type { RunPaths } from '../../run/paths.js';
import type { Prompt, Task } from '../scoring/task.js';

/** An episode's item, or why it cannot be made. */
export type FoundItem =
  { readonly item: JudgeItem; readonly missing: null } | { readonly item: null; readonly missing: string };

/** A recipe's task with any prompts and answers. */
export type RecordedTask = Task<Prompt, unknown>;

export interface ItemSources {
  readonly paths: RunPaths;
  /** The task with the run's data and models. Null if they do not exist. */
  readonly task: RecordedTask | null;
  /** Number of prompts per training iteration. */
  readonly promptsPerIteration: number;
  /** Why there is no task. */
  readonly noTask: string;
  /** Whether artifacts are still made identically. The recorded scores apply only to identical artifacts. */
  readonly redraws: boolean;
}

/** The items of a file of episodes, in order. */
export async function recordedItems(
  file: EpisodeFile,
  episodes: readonly RecordedEpisode[],
  sources: ItemSources,
): Promise<FoundItem[]> {
  const found = new Map<string, FoundItem>();
  for (const group of groupsOf(episodes)) {
    const items = await groupItems(group, await findPrompt(file, group[0], sources), sources);
    group.forEach(({ key }, i) => found.set(key, items[i]));
  }
  return episodes.map(({ key }) => found.get(key) ?? { item: null, missing: 'its key is recorded twice' });
}

/**
 * Groups episodes by prompt. They were generated together and are generated together again, which gives the same
 * pixels.
 */
function groupsOf(episodes: readonly RecordedEpisode[]): RecordedEpisode[][] {
  const groups = new Map<string, RecordedEpisode[]>();
  for (const episode of episodes) {
    const name = isHeldOut(episode) ? episode.key : episode.key.slice(0, episode.key.lastIndexOf('/'));
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [episode]);
    else group.push(episode);
  }
  return [...groups.values()];
}

/** An episode's prompt, derived from its place or its key, or the reason why it differs from the recorded prompt. */
async function findPrompt(
  file: EpisodeFile,
  episode: RecordedEpisode,
  { task, noTask, promptsPerIteration }: Pick<ItemSources, 'task' | 'noTask' | 'promptsPerIteration'>,
): Promise<Prompt | string> {
  if (task === null) return noTask;
  let prompt: Prompt;
  try {
    const place = parseHeldOutKey(episode.key);
    if (place !== null) {
      const named = task.validation.find(({ name }) => name === place.set);
      if (named === undefined) return `the run's settings name no validation set '${place.set}'`;
      prompt = await named.prompt(place.prompt);
    } else {
      prompt = await task.prompt(positionOf(file, episode, promptsPerIteration));
    }
  } catch (error) {
    if (error instanceof EditrlError) return `its sample cannot be read: ${error.message}`;
    throw error;
  }
  const same = prompt.id === episode.sample && prompt.instruction === episode.instruction;
  return same ? prompt : CHANGED;
}

const CHANGED = 'the data has changed since the run';

/** The position of a training episode's sample. */
function positionOf(
  { iteration }: EpisodeFile,
  { key, place }: RecordedEpisode,
  promptsPerIteration: number,
): Parameters<RecordedTask['prompt']>[0] {
  if (place !== undefined) return { source: place[0], index: place[1] };
  return (iteration - 1) * promptsPerIteration + Number(key.split('/')[1]);
}

async function groupItems(
  group: readonly RecordedEpisode[],
  found: Prompt | string,
  sources: ItemSources,
): Promise<FoundItem[]> {
  const { task } = sources;
  const labels: Labels = task === null || typeof found === 'string' ? { truth: null } : await task.labels(found);
  const isSame = group.every((episode) => hasBeside(episode, labels));
  const prompt = typeof found === 'string' || isSame ? found : CHANGED;
  const kept = await Promise.all(group.map((episode) => itemFromMedia(episode, labels, sources.paths)));
  const stored = kept.filter((one) => one !== null);
  if (stored.length === group.length) return stored;
  const without = (why: string): FoundItem[] =>
    kept.map((one, i) => one ?? { item: null, missing: `${lackOf(group[i])}, but ${why}` });
  if (typeof prompt === 'string') return without(prompt);
  if (task === null) return without(sources.noTask);
  if (!sources.redraws) return without('rendering it again gives another image');
  return (await draw(task, prompt, group)).map((item) => ({ item, missing: null }));
}

type Labels = Pick<JudgeItem, 'beside' | 'truth' | 'mask' | 'expected' | 'row'>;

/** Whether the data still has as many additional images as the episode had. */
function hasBeside({ beside = 0 }: RecordedEpisode, labels: Labels): boolean {
  return beside === (labels.beside ?? []).length;
}

/** The missing part of an episode whose stored images do not suffice. Only edited images are stored. */
function lackOf({ beside }: RecordedEpisode): string {
  return beside === undefined ? 'its artifact has to be rendered again' : 'its other images have to be read again';
}

/** Generates the items of the answers to one prompt again. */
async function draw(task: RecordedTask, prompt: Prompt, group: readonly RecordedEpisode[]): Promise<JudgeItem[]> {
  const answers = group.map((episode) => task.reread(episode));
  const [rendered] = await task.render([{ prompt, answers, keys: group.map(({ key }) => key) }], 'current');
  return rendered.map(({ item }) => item);
}

/**
 * Whether the run's artifacts are still made identically. Generates one prompt's answers again and compares them with
 * kept images. True if no images were kept or nothing can be generated.
 */
export async function redrawsIdentically(
  files: readonly EpisodeFile[],
  sources: Omit<ItemSources, 'redraws'>,
): Promise<boolean> {
  const { task, paths } = sources;
  if (task === null) return true;
  for (const file of files) {
    const group = groupsOf(readRecordedEpisodes(file.path)).find((one) => typeof one[0].edited === 'string');
    if (group === undefined) continue;
    const prompt = await findPrompt(file, group[0], sources);
    if (typeof prompt === 'string') return true;
    const kept = (await itemFromMedia(group[0], await task.labels(prompt), paths))?.item?.edited ?? null;
    const [drawn] = await draw(task, prompt, group);
    return kept === null || (drawn.edited !== null && imageId(drawn.edited) === imageId(kept));
  }
  return true;
}

/**
 * The item of an episode with kept images. Null if images were not kept, and for text answers.
 * An image generated from text has no source. The record does not contain why an image could not be made, so it is
 * requested again.
 */
async function itemFromMedia(
  episode: RecordedEpisode,
  labels: Labels,
  paths: RunPaths,
): Promise<Extract<FoundItem, { missing: null }> | null> {
  const { key, instruction, finished, answer, text, source, edited } = episode;
  if (source === undefined || edited === undefined) return null;
  if (!hasBeside(episode, labels)) return null;
  // A text answer to an image is read as words: the image was the prompt's, and rewards get none.
  if (edited === null && (source === null || text !== undefined)) return null;
  if (![source, edited].every((name) => name === null || existsSync(paths.media(name)))) return null;
  const read = (name: string): Promise<RgbImage> =>
    decodeImage(readPlain(paths.media(name)) ?? Buffer.alloc(0), paths.media(name));
  const item: JudgeItem = {
    key,
    instruction,
    source: source === null ? null : await read(source),
    edited: edited === null ? null : await read(edited),
    ...labels,
    ...(answer === undefined ? {} : { answer }),
    finished,
  };
  return { item, missing: null };
}
