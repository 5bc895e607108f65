import { describe, expect, it } from 'vitest';
import { postprocess } from '../../../src/recipes/prompt_enhance/rewrite.js';

describe('the prompt in what a model wrote', () => {
  it.each([
    ['a red cross', 'a red cross', []],
    ['  a red\n  cross  ', 'a red cross', []],
    ['"a red cross"', 'a red cross', ['"…"']],
    ['“a red cross”', 'a red cross', ['“…”']],
    ['Enhanced prompt: a red cross', 'a red cross', ['Enhanced prompt: ']],
    ['**Rewritten Prompt:** "a red cross"', 'a red cross', ['**Rewritten Prompt:** ', '"…"']],
    [
      'Sure! Here is an improved version of your prompt:\n\n"a red cross"',
      'a red cross',
      ['Sure! ', 'Here is an improved version of your prompt:\n\n', '"…"'],
    ],
    ["Here's the prompt: a red cross", 'a red cross', ["Here's the prompt: "]],
    ['"Prompt: a red cross"', 'a red cross', ['"…"', 'Prompt: ']],
    ['```text\na red cross\n```', 'a red cross', ['```text\n…\n```']],
    ['```a red cross```', 'a red cross', ['```…```']],
    ['**a red cross**', 'a red cross', ['**…**']],
    ['1. a red cross', 'a red cross', ['1. ']],
    ['a red cross\n\nThis version adds detail.', 'a red cross', ['\n\nThis version adds detail.']],
    ['"a red cross on a wall, lit from', 'a red cross on a wall, lit from', ['"']],
    ['***a red cross***', 'a red cross', ['**…**', '*…*']],
    [
      'Great idea! Here is a detailed version: a red cross',
      'a red cross',
      ['Great idea! ', 'Here is a detailed version: '],
    ],
    ['Okay, a red cross', 'a red cross', ['Okay, ']],
    ['', '', []],
    ['""', '', ['"…"']],
    ['Enhanced prompt:', '', ['Enhanced prompt:']],
  ])('%j is %j', (text, prompt, stripped) => {
    expect(postprocess(text)).toEqual({ prompt, stripped });
  });

  it.each([
    'a sign that says "OPEN"',
    '"OPEN" and "CLOSED" on two doors',
    "the baker's cat and the dog's bowl",
    'a description of heaven as a painting',
    'Here is the sea at night',
    'surely a cat',
    'greater heron by the prompt lake: dawn',
    'a *very* red cross',
    '3.5 metres of rope',
    'Great white shark leaping, cinematic',
    'Great Wall of China, golden hour',
    'Absolutely stunning landscape, golden hour, a cat',
    'Here are two cats: one red, one blue',
    '1980. A retro poster',
    '*a* and *b*',
    '**a** and **b**',
    '_a_ and _b_',
  ])('leaves %j as it is', (text) => {
    expect(postprocess(text)).toEqual({ prompt: text, stripped: [] });
  });

  it('takes away at most so much that what is left is part of what was written', () => {
    const pieces = ['"', 'Prompt:', 'a', 'cat', '**', '\n\n', '```', 'Sure!', "'", '- ', ' ', 'Output: '];
    let state = 1;
    for (let i = 0; i < 3000; i++) {
      let text = '';
      for (let n = 0; n < 7; n++) {
        state = (state * 48271) % 2147483647;
        text += pieces[state % pieces.length];
      }
      const { prompt } = postprocess(text);
      expect(text.replaceAll(/\s+/g, ' ')).toContain(prompt);
      expect(postprocess(prompt).prompt).toBe(prompt);
    }
  });
});
