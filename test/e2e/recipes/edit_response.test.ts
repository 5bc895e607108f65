import { Place } from '../editrl.js';
import { recipeContract } from './contract.js';
import { likesDarkPictures } from './reward_server.js';

/** The model that writes is trained on labels first, the one that draws on its hidden states, and then the first by rewards. */
recipeContract('edit_response', {
  makePlace: () => Place.make(null),
  config: 'configs/edit_response.jsonnet',
  overlays: ['configs/lib/edit_tiny.libsonnet', 'test/e2e/recipes/edit_small.libsonnet'],
  startJudge: likesDarkPictures,
  otherReward: 'jpeg_size',
  answersInWords: true,
});
