import { expect, it } from 'vitest';
import { type ChatTemplate, promptText } from '../../../src/models/chat/template.js';

it('adds special tokens to plain text alone: a template writes its own, with or without a prefill', async () => {
  const template = { render: async () => '<s>hello' } as unknown as ChatTemplate;
  const messages = [{ role: 'user', content: 'hello' }];
  expect(await promptText({ template }, messages)).toEqual({ text: '<s>hello', addSpecial: false });
  expect(await promptText({ template }, messages, undefined, 'So: ')).toEqual({
    text: '<s>helloSo: ',
    addSpecial: false,
  });
  expect(await promptText({ template }, 'hello', undefined, ' So')).toEqual({ text: 'hello So', addSpecial: true });
});
