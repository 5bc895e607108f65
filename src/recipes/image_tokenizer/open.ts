/** Opens `image_tokenizer`: trains the vision tokenizer, and writes the joint vocabulary that goes with its codes. */
import type { ImageTokenizerSettings } from './settings.js';
import { sessionOptions } from '../../engines/onnx/session_options.js';
import { jointVocabularyJson, THINKING_WORDS } from '../../policies/tokens/emu3/space.js';
import { tinyVocabulary } from '../../tiny/world/vocabulary.js';
import type { Bench } from '../../train/bench.js';
import { ImageTokenizerTraining } from '../../train/image_tokenizer.js';
import type { Training } from '../../train/loop.js';
import type { OpenRecipe } from '../../train/opener.js';
import { scheduleOf } from '../../train/schedule.js';
import { makeData } from './data.js';

function open(settings: ImageTokenizerSettings, { checkpoint, handle, log }: Bench): Promise<Training> {
  const { seed, environment, optimizer, algorithm, data, validation } = settings;
  return ImageTokenizerTraining.open({
    seed,
    init: environment.init,
    optimizer,
    schedule: scheduleOf(settings),
    sft: algorithm.sft,
    data,
    validation,
    session: sessionOptions(environment.engine),
    tokenizerJson: jointTokenizerJson(settings),
    checkpoint,
    // All ranks open the same datasets; one of them says it.
    remark: (text) => void (handle !== null && log.logger.warn(text)),
  });
}

/** `tokenizer.json` of the joint vocabulary: special tokens, the words that the data can hold, one token per code. */
export function jointTokenizerJson({ data: { tiny }, environment }: ImageTokenizerSettings): string {
  const words = tiny === null ? [] : tinyVocabulary({ columns: tiny.grid, rows: tiny.grid, cell: tiny.cell });
  return jointVocabularyJson([...THINKING_WORDS, ...words], environment.init.codebook_size);
}

export const imageTokenizer: OpenRecipe<ImageTokenizerSettings> = { makeData, open, openTask: () => null };
