/** Pictures of a server of the OpenAI images API. */
import { ImagesClient, type PictureAsked } from '../environments/images_api/client.js';
import { requestHashOf } from '../environments/images_api/hash.js';
import type { ServedPictures, ServerImages } from '../environments/served/pictures.js';
import type { ImagesServerSettings } from '../schema/images_api.js';
import {
  lookAtServers,
  openServers,
  storedPictures,
  type PicturedRun,
  type PictureServers,
  type PictureServices,
} from './pictures_elsewhere.js';

/** What is asked of them: to draw pictures from words, or to edit some. */
export type ImagesWork = 'draws' | 'edits';

/** As `openServers`. */
export function openImagesServer(
  run: PicturedRun,
  settings: ImagesServerSettings,
  services: PictureServices,
  work: ImagesWork = 'draws',
): Promise<ServerImages<PictureAsked>> {
  return openServers(run, serversOf(settings, work), services);
}

/** As `storedPictures`. */
export function openStoredPictures(run: PicturedRun, settings: ImagesServerSettings): ServedPictures<PictureAsked> {
  return storedPictures<PictureAsked>(run, (asked) => requestHashOf(settings, asked));
}

/** As `lookAtServers`. */
export function lookAtImagesServer(settings: ImagesServerSettings): Promise<readonly string[]> {
  return lookAtServers(serversOf(settings, 'draws'));
}

function serversOf(settings: ImagesServerSettings, work: ImagesWork): PictureServers<PictureAsked, ImagesClient> {
  return {
    name: 'images server',
    settings,
    open: ({ concurrency, ...services }) => new ImagesClient({ settings: { ...settings, concurrency }, ...services }),
    first: (client, within) => client.ready(within, work),
    begun: (client) => client.hasDrawn(),
    hash: (asked) => requestHashOf(settings, asked),
  };
}
