/** The length in tokens of the longest edit that a run may ask for. */
import { imageSize } from '../../core/image.js';
import type { LongestStates } from '../../environments/render_server/client.js';
import { sourcesOf } from '../../data/pictured_edits.js';
import type { PicturedSource, PicturedTask } from '../open_pictured.js';
import { pictureStart } from '../open_pictured.js';
import type { EditResponseSettings } from './settings.js';

/**
 * Counts the tokens of the row with the longest pictures and instruction, estimated from the headers of picture files and the bytes of words, with
 * the longest possible answer if the model that draws gets the response. Raises DataError when that row cannot be asked.
 */
export async function longestEdit(
  {
    words,
    seeing,
    blank,
    pictureName,
  }: Pick<PicturedTask<EditResponseSettings>, 'words' | 'seeing' | 'blank' | 'pictureName'>,
  { rollout, policy, environment }: Pick<EditResponseSettings, 'rollout' | 'policy' | 'environment'>,
): Promise<LongestStates> {
  const pictures = new Map<string, number>();
  let most: { readonly source: PicturedSource; readonly index: number; readonly length: number } | null = null;
  for (const [source, rows] of words.asked) {
    for (let index = 0; index < rows; index++) {
      const edit = source.edits.read(index);
      let length = Buffer.byteLength(edit.instruction);
      for (const file of sourcesOf(edit)) {
        const tokens = pictures.get(file) ?? (await tokensIn(file, seeing));
        pictures.set(file, tokens);
        length += tokens;
      }
      if (most === null || length > most.length) most = { source, index, length };
    }
  }
  if (most === null) return { edit: 1, blank: 1 };
  const prompt = await words.promptOf(most.source, most.index);
  const { ids } = prompt.tokens;
  const room = Math.min(rollout.max_response_tokens, policy.model_context_size - ids.length);
  const said = environment?.told === 'instruction' ? 0 : room;
  const without = (await blank(prompt)).ids;
  return {
    edit: ids.length - pictureStart(ids, seeing, pictureName) + said,
    blank: without.length - pictureStart(without, seeing, pictureName),
  };
}

/** 0 for a picture that cannot be opened, which is reported when it is needed. */
async function tokensIn(file: string, { processor }: PicturedTask<EditResponseSettings>['seeing']): Promise<number> {
  const size = await imageSize(file);
  return size === null ? 0 : processor.tokensOf(size);
}
