import { cpSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { DataError } from '../../src/core/errors.js';
import { encodeSafetensors } from '../../src/core/safetensors.js';
import { WORDS_FILE, WordEncoder, wordsIn } from '../../src/train/environments/word_encoder.js';
import { openTokenizer } from '../../src/models/tokenizer/open.js';
import { initDecoder } from '../../src/compute/nets/decoder/config.js';
import { openRunEnhancer, type EnhancedPrompt, type Enhancer } from '../../src/recipes/prompt_enhance/enhancer.js';
import { textReader } from '../../src/rewards/terms/clip/model.js';
import { smallConfig } from '../train/policies/vllm/small_base.js';
import { FIXTURES } from '../models/python_fixtures.js';
import { testFolders } from '../support/folder.js';
import { tinyClip } from '../rewards/terms/clip/pictures.js';
import { smallSettings } from './prompt_enhance/small.js';
import type { Sections } from './small_config.js';

const newFolder = testFolders('enhancer');

/** A model of random weights with a tokenizer of Hugging Face's and this chat template. */
function modelOf(template: string): string {
  const folder = newFolder();
  cpSync(join(FIXTURES, 'qwen2'), folder, { recursive: true });
  const config = { ...smallConfig, vocab_size: openTokenizer(folder).size };
  const weights = initDecoder(config, { embedding_std: 0.8, initializer_range: 0.5 }, 1);
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  writeFileSync(join(folder, 'model.safetensors'), encodeSafetensors(weights));
  writeFileSync(join(folder, 'chat_template.jinja'), template);
  writeFileSync(join(folder, 'generation_config.json'), JSON.stringify({ eos_token_id: [420, 422] }));
  return folder;
}

type EnhancedBy = EnhancedPrompt & Pick<Enhancer, 'problems'>;

const CHAT = '{% for m in messages %}{{ m.content }}{% endfor %}';

async function enhanced(template: string, prompt: string, changes: Sections = {}): Promise<EnhancedBy> {
  const model = modelOf(template);
  const settings = smallSettings({
    policy: { init: null, model },
    prompt: { chat: true },
    rollout: { max_response_tokens: 8 },
    ...changes,
  });
  const enhancer = await openRunEnhancer(settings, model, { resolveRun: () => '', seed: 0, sampling: {} });
  try {
    return { ...(await enhancer.enhance([prompt], 0))[0], problems: enhancer.problems };
  } finally {
    await enhancer.dispose();
  }
}

describe('a rewrite', () => {
  it('is what stands after the thoughts, those that the template opens among them', async () => {
    expect((await enhanced(CHAT, 'a cat')).enhanced_prompt).not.toBe('');
    const { enhanced_prompt, stripped } = await enhanced(`${CHAT}<think>\n`, 'a cat');
    expect(enhanced_prompt).toBe('');
    expect(stripped).toEqual([expect.stringMatching(/./) as string]);
  });

  it('is reported to be longer than the image model reads, and a prompt longer than CLIP reads', async () => {
    const painter = newFolder();
    writeFileSync(join(painter, WORDS_FILE), new WordEncoder({ words: ['cat'], length: 1 }).json());
    const environment = { type: 'model', model: painter, width: 16, height: 16 };
    const reward = { terms: [{ name: 'clip', weight: 1, model: tinyClip }] };
    const long = 'a '.repeat(22);
    const cut = await enhanced(CHAT, long, { environment, reward });
    expect(wordsIn(cut.enhanced_prompt).length).toBeGreaterThan(1);
    expect(cut.unread).toBe(wordsIn(cut.enhanced_prompt).length - 1);
    expect(cut.prompt_unread).toBe(await textReader(tinyClip).unread(long));
    expect(cut.prompt_unread).toBeGreaterThan(0);
    expect(await enhanced(CHAT, 'a cat', { environment, reward })).toMatchObject({ prompt_unread: 0, problems: [] });
  });

  it('is made without the models that would read it, which is reported', async () => {
    const { enhanced_prompt, unread, prompt_unread, problems } = await enhanced(CHAT, 'a cat');
    expect(enhanced_prompt).not.toBe('');
    expect([unread, prompt_unread]).toEqual([null, null]);
    expect(problems).toEqual([
      'how much the image model reads is not known: painter: there is no such model folder',
      'how much clip reads is not known: clip: there is no such model folder',
    ]);
  });

  it('is rejected where the prompt leaves no room for it', async () => {
    const long = enhanced(CHAT, 'a cat on a mat '.repeat(40));
    await expect(long).rejects.toThrow(DataError);
    await expect(long).rejects.toThrow(/^of \d+ tokens .* leaves no room for an answer: the context is 64$/);
    await expect(long).rejects.toMatchObject({ where: expect.stringMatching(/^'a cat on a mat .{45}…'$/) as string });
  });
});
