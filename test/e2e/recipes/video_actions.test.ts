import { describe } from 'vitest';
import { hasFfmpeg } from '../../data/video/odd_files.js';
import { Place } from '../editrl.js';
import { recipeContract } from './contract.js';
import { likesShortAnswers } from './reward_server.js';

/** Its model sees real clips, is trained on labels first, and then by rewards. */
describe.skipIf(!hasFfmpeg)('with ffmpeg (skipped without it)', () => {
  recipeContract('video_actions', {
    makePlace: () => Place.make(null),
    config: 'configs/video_actions.jsonnet',
    overlays: ['configs/lib/video_tiny.libsonnet', 'test/e2e/recipes/video_small.libsonnet'],
    startJudge: likesShortAnswers,
    otherReward: 'format_accuracy',
    answersInWords: true,
  });
});
