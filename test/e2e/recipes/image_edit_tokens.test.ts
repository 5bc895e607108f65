import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inject } from 'vitest';
import { openAiError, startStubJudge } from '../../rewards/judge/stub_judge.js';
import { configFile, Place, RL, ROOT } from '../editrl.js';
import { isCanary, scoreByPictures } from '../scorer.js';
import { recipeContract, variantContract, type TestJudge, type TestServer } from './contract.js';

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

const given = { config: configFile(RL), startJudge, otherReward: 'jpeg_size', answersInWords: false };
const JUDGED = 'test/e2e/recipes/judged.libsonnet';

recipeContract('image_edit_tokens', {
  ...given,
  makePlace: () => Place.make(inject('template')),
  overlays: ['configs/lib/tiny.libsonnet', 'test/e2e/small.libsonnet', JUDGED],
});

/** A small Emu3 with samples that torch saved, whose lists say where they lie on this machine. */
function emu3Folder(): TestServer {
  const folder = mkdtempSync(join(tmpdir(), 'editrl-emu3-'));
  cpSync(join(ROOT, 'test/recipes/image_edit_tokens/emu3'), folder, { recursive: true });
  for (const split of ['train', 'validation']) {
    const list = join(folder, 'data', split, 'list/tokenized_datalist.json');
    const { path_list } = JSON.parse(readFileSync(list, 'utf8')) as { path_list: unknown };
    writeFileSync(list, JSON.stringify({ path_list }));
  }
  const close = (): Promise<void> => Promise.resolve(rmSync(folder, { recursive: true }));
  return { env: { APP__EMU3: folder, APP__EMU3_REWARD: '' }, close };
}

/** Its start is trained first. */
variantContract("image_edit_tokens with Emu3's forms", {
  ...given,
  makePlace: () => Place.make(null),
  overlays: ['test/e2e/recipes/emu3_small.libsonnet', 'test/e2e/recipes/emu3_judged.libsonnet', JUDGED],
  startEnvironment: () => Promise.resolve(emu3Folder()),
});
