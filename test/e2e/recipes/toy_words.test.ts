import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Place } from '../editrl.js';
import { recipeContract } from './contract.js';
import { programWith, type Program } from './program.js';
import { likesShortAnswers } from './reward_server.js';

const CONFIG = 'test/e2e/recipes/toy_words.jsonnet';
let program: Program;

beforeAll(() => {
  program = programWith({ name: 'toy_words', folder: join(import.meta.dirname, 'toy_words'), member: 'toyWords' });
});
afterAll(() => program.remove());

describe('a program with one recipe more', () => {
  it('has its folder, and its lines in the two tables, and is the product in all else', () => {
    expect([...program.different].sort()).toEqual([
      'recipes/open.js',
      'recipes/settings.js',
      ...['open', 'settings', 'task'].map((file) => `recipes/toy_words/${file}.js`),
    ]);
  });

  it('checks and describes its settings', async () => {
    const place = Place.make(null, program.command);
    try {
      const wrong = await place.call(['check', CONFIG, '--set', 'task=toy_word', '--set', 'questions.largest=10']);
      expect(wrong.code).toBe(2);
      expect(wrong.err).toContain("did you mean 'toy_words'?");
      expect(wrong.err).toContain('questions.largest: found 10; allowed: a number <= 9');
      const { out } = await place.call(['config', 'schema']);
      expect(out).toContain('"How many questions are held out."');
    } finally {
      place.remove();
    }
  });
});

recipeContract('toy_words', {
  makePlace: () => Place.make(null, program.command),
  config: CONFIG,
  overlays: [],
  startJudge: likesShortAnswers,
  otherReward: 'format_accuracy',
  answersInWords: true,
});
