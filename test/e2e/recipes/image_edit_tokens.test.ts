import { inject } from 'vitest';
import { startStubJudge } from '../../rewards/judge/stub_judge.js';
import { configFile, Place, RL } from '../editrl.js';
import { scoreByPictures } from '../scorer.js';
import { recipeContract, type TestJudge } from './contract.js';

async function startJudge(): Promise<TestJudge> {
  const stub = await startStubJudge((request) =>
    judge.manner() === 'scores' ? scoreByPictures(request) : { kind: 'silent' },
  );
  const judge: TestJudge = { url: stub.url, manner: () => 'scores', close: () => stub.close() };
  return judge;
}

recipeContract('image_edit_tokens', {
  config: configFile(RL),
  startJudge,
  otherReward: 'jpeg_size',
  answersInWords: false,
  makePlace: () => Place.make(inject('template')),
  overlays: ['configs/lib/tiny.libsonnet', 'test/e2e/small.libsonnet', 'test/e2e/recipes/judged.libsonnet'],
});
