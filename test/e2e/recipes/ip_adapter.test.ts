import { Place } from '../editrl.js';
import { recipeContract } from './contract.js';
import { likesDarkPictures } from './reward_server.js';

/** Its model is a run that is trained first. */
recipeContract(
  'ip_adapter',
  {
    makePlace: () => Place.make(null),
    config: 'configs/ip_adapter.jsonnet',
    overlays: ['configs/lib/ip_adapter_tiny.libsonnet', 'test/e2e/recipes/ip_adapter_small.libsonnet'],
    startJudge: likesDarkPictures,
    otherReward: 'jpeg_size',
    answersInWords: false,
  },
  'kill',
);
