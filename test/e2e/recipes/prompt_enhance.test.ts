import { StubImages } from '../../environments/images_api/stub_images.js';
import { Place } from '../editrl.js';
import { recipeContract, type TestJudge } from './contract.js';
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
recipeContract('prompt_enhance with pictures of a server', {
  ...given,
  startJudge: besideImages,
  overlays: [...SMALL, 'test/e2e/recipes/enhance_pictured.libsonnet'],
});

/** The judge, with an images server at APP__IMAGES for as long as it is there. */
async function besideImages(): Promise<TestJudge> {
  const [judge, stub] = await Promise.all([likesDarkPictures(), StubImages.start()]);
  process.env['APP__IMAGES'] = stub.url;
  const close = judge.close.bind(judge);
  judge.close = async () => {
    delete process.env['APP__IMAGES'];
    await Promise.all([stub.close(), close()]);
  };
  return judge;
}
