import { inject } from 'vitest';
import { openAiError, startStubJudge } from '../../rewards/judge/stub_judge.js';
import { configFile, Place, RL } from '../editrl.js';
import { isCanary, scoreByPictures } from '../scorer.js';
import { recipeContract, type TestJudge } from './contract.js';

async function startJudge(): Promise<TestJudge> {
  const stub = await startStubJudge((request) => {
    switch (judge.manner()) {
      case 'scores':
        return scoreByPictures(request);
      case 'silent':
        return { kind: 'silent' };
      case 'fails':
        if (isCanary(request)) judge.onLook();
        return openAiError(503, 'overloaded');
    }
  });
  const judge: TestJudge = { url: stub.url, manner: () => 'scores', onLook: () => {}, close: () => stub.close() };
  return judge;
}

recipeContract('image_edit_tokens', {
  makePlace: () => Place.make(inject('template')),
  config: configFile(RL),
  overlays: ['configs/lib/tiny.libsonnet', 'test/e2e/small.libsonnet', 'test/e2e/recipes/judged.libsonnet'],
  startJudge,
  otherReward: 'jpeg_size',
  answersInWords: false,
});
