/** Chat templates of vision-language models, and of newer text models, against transformers (test/fixture_scripts/vision_chats.py). */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { ChatTemplate, type Message } from '../../../src/models/chat/template.js';

interface Chats {
  readonly conversations: readonly (readonly Message[])[];
  readonly chats: Readonly<
    Record<
      string,
      {
        readonly template: string;
        readonly cases: readonly {
          readonly messages: number;
          readonly generation: boolean;
          readonly extra: Readonly<Record<string, unknown>>;
          readonly text: string;
        }[];
      }
    >
  >;
}

// Another file of the same form can be compared, such as one with published templates.
const path = process.env['VISION_CHATS'] ?? new URL('../fixtures/vision_chats.json', import.meta.url);
const { conversations, chats } = JSON.parse(readFileSync(path, 'utf8')) as Chats;

describe.each(Object.entries(chats))('%s', (name, { template: source, cases }) => {
  it('is rendered byte by byte as transformers renders it, with words, images, clips and thoughts', async () => {
    const template = new ChatTemplate(source, name, { bos_token: '<s>', eos_token: '</s>' });
    const texts = await Promise.all(
      cases.map(({ messages, generation, extra }) =>
        template.render(conversations[messages], { addGenerationPrompt: generation, variables: extra }),
      ),
    );
    expect(texts).toEqual(cases.map(({ text }) => text));
    expect(cases).toHaveLength(80);
  });
});
