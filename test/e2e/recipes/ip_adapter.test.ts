import { Place } from '../editrl.js';
import { recipeContract, variantContract } from './contract.js';
import { likesDarkPictures } from './reward_server.js';

/** Its model is a run that is trained first. */
const given = {
  makePlace: () => Place.make(null),
  config: 'configs/ip_adapter.jsonnet',
  startJudge: likesDarkPictures,
  otherReward: 'jpeg_size',
  answersInWords: false,
};
const SMALL = ['configs/lib/ip_adapter_tiny.libsonnet', 'test/e2e/recipes/ip_adapter_small.libsonnet'];
recipeContract('ip_adapter', { ...given, overlays: SMALL }, 'kill');
variantContract('ip_adapter by ppo', {
  ...given,
  overlays: [...SMALL, 'test/e2e/recipes/ip_adapter_ppo.libsonnet'],
});
variantContract('ip_adapter on the forward process', {
  ...given,
  overlays: [...SMALL, 'test/e2e/recipes/ip_adapter_nft.libsonnet'],
});
