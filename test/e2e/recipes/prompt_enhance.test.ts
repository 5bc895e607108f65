import { Place } from '../editrl.js';
import { recipeContract } from './contract.js';
import { likesDarkPictures } from './reward_server.js';

/** Its policy, its image model and its CLIP are runs that are trained first. */
const given = {
  makePlace: () => Place.make(null),
  config: 'configs/prompt_enhance.jsonnet',
  startJudge: likesDarkPictures,
  otherReward: 'jpeg_size',
  answersInWords: true,
};
const SMALL = ['test/e2e/recipes/enhance_small.libsonnet'];
recipeContract('prompt_enhance', { ...given, overlays: SMALL });
recipeContract('prompt_enhance with adapters', {
  ...given,
  overlays: [...SMALL, 'test/e2e/recipes/enhance_adapters.libsonnet'],
});
