/** How long the longest edit is that a run may ask for, in tokens. */
import { imageSize } from '../../core/image.js';
import type { Longest } from '../../environments/render_server/client.js';
import type { PicturedSource, PicturedTask } from '../open_pictured.js';
import { pictureStart } from '../open_pictured.js';
import type { EditResponseSettings } from './settings.js';

/**
 * Counts the tokens of the row whose picture and instruction are the longest, pictures by the headers of their files and words by their bytes,
 * with an answer of as many tokens as it may have where what draws is told that. Raises DataError where that row cannot be asked.
 */
export async function longestEdit(
  {
    words,
    seeing,
    blank,
    pictureName,
  }: Pick<PicturedTask<EditResponseSettings>, 'words' | 'seeing' | 'blank' | 'pictureName'>,
  { rollout, policy, environment }: Pick<EditResponseSettings, 'rollout' | 'policy' | 'environment'>,
): Promise<Longest> {
  const pictures = new Map<string, number>();
  let most: { readonly source: PicturedSource; readonly index: number; readonly length: number } | null = null;
  for (const [source, rows] of words.asked) {
    for (let index = 0; index < rows; index++) {
      const { source: file, instruction } = source.edits.read(index);
      const tokens = pictures.get(file) ?? (await tokensIn(file, seeing));
      pictures.set(file, tokens);
      const length = tokens + Buffer.byteLength(instruction);
      if (most === null || length > most.length) most = { source, index, length };
    }
  }
  if (most === null) return { told: 1, blank: 1 };
  const prompt = await words.promptOf(most.source, most.index);
  const { ids } = prompt.tokens;
  const room = Math.min(rollout.max_response_tokens, policy.model_context_size - ids.length);
  const said = environment?.told === 'instruction' ? 0 : room;
  const without = (await blank(prompt)).ids;
  return {
    told: ids.length - pictureStart(ids, seeing, pictureName) + said,
    blank: without.length - pictureStart(without, seeing, pictureName),
  };
}

/** 0 for a picture that cannot be opened, which is told when it is asked for. */
async function tokensIn(file: string, { processor }: PicturedTask<EditResponseSettings>['seeing']): Promise<number> {
  const size = await imageSize(file);
  return size === null ? 0 : processor.tokensOf(size);
}
