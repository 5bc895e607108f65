import { RandomStream } from '../../../src/core/random.js';
import { StubImages, type Fault } from '../../environments/images_api/stub_images.js';
import { Place } from '../editrl.js';
import { recipeContract, variantContract, type TestServer } from './contract.js';
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
variantContract('prompt_enhance with adapters', {
  ...given,
  overlays: [...SMALL, 'test/e2e/recipes/enhance_adapters.libsonnet'],
});

variantContract('prompt_enhance with Stable Diffusion 3', {
  ...given,
  overlays: [...SMALL, 'test/e2e/recipes/enhance_sd3.libsonnet'],
});

/** An images server that fails some requests, by their order. */
async function faultyImages(): Promise<TestServer> {
  const faults: readonly Fault[] = [{ kind: 'status', status: 500 }, { kind: 'cut' }, { kind: 'half' }];
  const stub = await StubImages.start();
  const random = new RandomStream('faulty', 1);
  stub.fault = ({ path }) =>
    path.startsWith('/v1/images/') && random.uniform() < 0.1 ? faults[random.integer(faults.length)] : null;
  return { env: { APP__IMAGES: stub.url }, close: () => stub.close() };
}

variantContract(
  'prompt_enhance with an images server',
  {
    ...given,
    overlays: ['test/e2e/recipes/enhance_served.libsonnet', 'test/e2e/recipes/enhance_served_judged.libsonnet'],
    startEnvironment: faultyImages,
  },
  'kill',
);
