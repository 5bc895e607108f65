/** CLIP's tokenizer in the form of its first years, vocab.json and merges.txt, as the tokenizer.json that transformers makes of it. */
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';

export const CLIP_VOCABULARY_FILE = 'vocab.json';
export const CLIP_MERGES_FILE = 'merges.txt';
/** The classes of transformers that read these two files so; others with the same files split texts in other ways. */
export const CLIP_TOKENIZERS: readonly unknown[] = ['CLIPTokenizer', 'CLIPTokenizerFast'];

const [START, END] = ['<|startoftext|>', '<|endoftext|>'];
const WORDS = String.raw`<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+`;

const vocabulary = z.record(z.string(), z.int().nonnegative());

/** The text of the tokenizer.json. Raises CheckpointError, naming `where`, for a vocabulary of another form, or without the tokens that begin and end a text. */
export function clipTokenizerJson(vocab: unknown, merges: string, where: string): string {
  const parsed = vocabulary.safeParse(vocab);
  if (!parsed.success) throw new CheckpointError('it is no table of tokens and their ids', { where });
  const [start, end] = [START, END].map((token) => {
    const id = parsed.data[token] as number | undefined;
    if (id === undefined) throw new CheckpointError(`there is no token ${token}`, { where });
    return { id, content: token, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  });
  const pairs = merges.split(/\r?\n/).filter((line) => line !== '' && !line.startsWith('#version'));
  return JSON.stringify({
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [start, end].sort((a, b) => a.id - b.id),
    normalizer: {
      type: 'Sequence',
      normalizers: [
        { type: 'NFC' },
        { type: 'Replace', pattern: { Regex: String.raw`\s+` }, content: ' ' },
        { type: 'Lowercase' },
      ],
    },
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: WORDS }, behavior: 'Removed', invert: true },
        { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
      ],
    },
    post_processor: {
      type: 'RobertaProcessing',
      sep: [END, end.id],
      cls: [START, start.id],
      trim_offsets: false,
      add_prefix_space: false,
    },
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: END,
      continuing_subword_prefix: '',
      end_of_word_suffix: '</w>',
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: parsed.data,
      merges: pairs,
    },
  });
}
