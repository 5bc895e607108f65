import { expect, it } from 'vitest';
import { promptText } from '../../../src/models/chat/prompt.js';
import type { ChatTemplate } from '../../../src/models/chat/template.js';

it('adds special tokens to plain text alone: a template writes its own, with or without a prefill', () => {
  const template = { render: () => '<s>hello' } as unknown as ChatTemplate;
  const messages = [{ role: 'user', content: 'hello' }];
  expect(promptText({ template }, messages)).toEqual({ text: '<s>hello', addSpecial: false });
  expect(promptText({ template }, messages, undefined, 'So: ')).toEqual({ text: '<s>helloSo: ', addSpecial: false });
  expect(promptText({ template }, 'hello', undefined, ' So')).toEqual({ text: 'hello So', addSpecial: true });
});
