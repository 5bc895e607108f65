import { Place } from '../editrl.js';
import { recipeContract } from './contract.js';
import { likesDarkPictures } from './reward_server.js';

/** It starts from a run on labeled edits. */
recipeContract(
  'image_editor',
  {
    makePlace: () => Place.make(null),
    config: 'configs/image_editor.jsonnet',
    overlays: ['configs/lib/image_editor_tiny.libsonnet', 'test/e2e/recipes/image_editor_small.libsonnet'],
    startJudge: likesDarkPictures,
    otherReward: 'jpeg_size',
    answersInWords: false,
  },
  'kill',
);
