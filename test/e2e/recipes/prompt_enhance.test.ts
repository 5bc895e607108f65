import { Place } from '../editrl.js';
import { recipeContract } from './contract.js';
import { likesDarkPictures } from './reward_server.js';

/** Its policy, its image model and its CLIP are runs that are trained first. */
recipeContract('prompt_enhance', {
  makePlace: () => Place.make(null),
  config: 'configs/prompt_enhance.jsonnet',
  overlays: ['test/e2e/recipes/enhance_small.libsonnet'],
  startJudge: likesDarkPictures,
  otherReward: 'jpeg_size',
  answersInWords: true,
});
