/** Connects a run to image servers, and stores their images. */
import { lineForm, type RemoteExchange } from '../../core/remote/exchange.js';
import { Deadline, systemClock } from '../../core/clock.js';
import { EndpointError } from '../../core/errors.js';
import { decodeImage, encodePng, type RgbImage, sha256 } from '../../core/images/image.js';
import { readPlain } from '../../core/plain_file.js';
import { ImagesClient, type ImagesRequest, requestHashOf } from '../environments/images_api.js';
import {
  type LongestStates,
  RenderClient,
  renderHash,
  type RenderIdentity,
  type RenderRequest,
} from '../environments/render_server.js';
import {
  type ImageReply,
  type ImageStore,
  type ServedImages,
  ServerImages,
  type StoredImage,
} from '../environments/served.js';
import { Exchanges } from '../../run/exchanges.js';
import { storePng } from '../../run/episodes.js';
import type { RunPaths } from '../../run/paths.js';
import type { RenderEditor } from '../../config/schema/editor.js';
import type { QueriedServersSettings, ImagesServerSettings } from '../../config/schema/images_api.js';
import { type ClientServices, type NamedRun, openRemote, pathsOf, type RemoteServices } from './remote.js';

const LOOK_MS = 10_000;

/** A client of servers of one kind. */
interface ServerClient<Requested> {
  /** Base URLs. */
  readonly urls: readonly string[];
  /** Why servers are not ready now, one sentence for each of them. Failures of a server never reject the promise. */
  problems(within: Deadline): Promise<readonly string[]>;
  /**
   * Generates one image. Raises EndpointError when no server returns one before the deadline or within the attempts.
   */
  draw(imageRequest: Requested, within: Deadline): Promise<ImageReply>;
  close(): Promise<void>;
}

interface CheckableServers<Client> {
  /** The name of one of them in messages. */
  readonly name: string;
  readonly settings: QueriedServersSettings & { readonly served_model: string };
  readonly open: (services: ClientServices & { readonly apiKey: string | undefined }) => Client;
}

interface ImageServers<Requested, Client> extends CheckableServers<Client> {
  /**
   * Waits until one can generate images with the settings. Called on rank 0 of a run without stored images. Raises
   * EndpointError.
   */
  readonly prepare: (client: Client, within: Deadline) => Promise<void>;
  /** Called on every rank once servers have generated an image with the settings. */
  readonly onReady?: (client: Client) => void;
  /** SHA-256 of everything that determines an image. */
  readonly hash: (imageRequest: Requested) => string;
}

/**
 * Waits for the servers. If the run has no stored images, generates one unused image, so that settings which the
 * servers reject are reported at once.
 * Every rank calls it. Raises ConfigError for a key that cannot be sent, EndpointError when no server returns an image,
 * and WaitInterrupted when the run is asked to stop meanwhile.
 */
async function openServers<Requested extends object, Client extends ServerClient<Requested>>(
  run: NamedRun,
  { name, settings, open, prepare, onReady, hash }: ImageServers<Requested, Client>,
  services: RemoteServices,
): Promise<ServerImages<Requested>> {
  const { client, paths, lines, replay } = await openRemote(
    run,
    {
      name: `the ${name}`,
      settings,
      open: (tools) => open({ ...tools, apiKey: process.env[settings.api_key_env] }),
      form: imageForm,
      linesOf: ({ pictures }) => pictures,
      prepare: async (client, within, stored) => {
        if (stored > 0) return;
        await prepare(client, within);
        services.log.logger.info(`${settings.served_model} generates images at ${client.urls.join(', ')}`);
      },
    },
    services,
  );
  onReady?.(client);
  return new ServerImages({ ...replay, client, hash, store: new RunImages(paths, lines) });
}

/** The stored images of a run, for scoring its episodes again. Contacts no server. */
function storedImages<Requested extends object>(
  run: NamedRun,
  hash: (imageRequest: Requested) => string,
): ServedImages<Requested> {
  const paths = pathsOf(run, null);
  const lines = new Exchanges(paths.pictures, imageForm, { isOwner: false, from: null });
  const store = new RunImages(paths, lines);
  return {
    generate: (requests) =>
      Promise.all(
        requests.map(async (request) => {
          const stored = await store.find(request.key, hash(request));
          if (stored === undefined) {
            return { kind: 'unavailable', reason: 'empty', detail: 'its image is no longer stored' };
          }
          return stored.image === null
            ? { kind: 'unavailable', reason: 'refused', detail: stored.refused ?? '' }
            : { kind: 'made', image: stored.image };
        }),
      ),
    close: async () => lines.close(),
  };
}

/**
 * Checks once whether servers can generate a run's images. Returns the problems of single servers, one sentence each.
 * Raises EndpointError when none of them can.
 */
async function checkServers<Requested>({
  name,
  settings,
  open,
}: CheckableServers<ServerClient<Requested>>): Promise<readonly string[]> {
  const { concurrency, api_key_env } = settings;
  const client = open({ concurrency, apiKey: process.env[api_key_env] });
  const deadline = new Deadline(systemClock, LOOK_MS);
  try {
    const found = await client.problems(deadline);
    if (found.length < client.urls.length) return found;
    throw new EndpointError(`no ${name} is ready: ${found.join('; ')}`, {
      where: 'environment.base_url',
      next: 'Start it, or check its address, its key (environment.api_key_env) and environment.served_model.',
    });
  } finally {
    deadline.dispose();
    await client.close();
  }
}

/** The work of servers of the OpenAI images API: generating images from text, or editing images. */
export type ImagesWork = 'draws' | 'edits';

/** See `openServers`. */
export function openImagesServer(
  run: NamedRun,
  settings: ImagesServerSettings,
  services: RemoteServices,
  work: ImagesWork = 'draws',
): Promise<ServerImages<ImagesRequest>> {
  return openServers(
    run,
    {
      ...imagesServers(settings),
      prepare: (client, within) => client.ready(within, work),
      onReady: (client) => client.hasDrawn(),
      hash: (imageRequest) => requestHashOf(settings, imageRequest),
    },
    services,
  );
}

/** See `storedImages`. */
export function openStoredImages(run: NamedRun, settings: ImagesServerSettings): ServedImages<ImagesRequest> {
  return storedImages<ImagesRequest>(run, (imageRequest) => requestHashOf(settings, imageRequest));
}

/** See `checkServers`. */
export function checkImagesServer(settings: ImagesServerSettings): Promise<readonly string[]> {
  return checkServers(imagesServers(settings));
}

function imagesServers(settings: ImagesServerSettings): CheckableServers<ImagesClient> {
  return {
    name: 'images server',
    settings,
    open: ({ concurrency, ...services }) => new ImagesClient({ settings: { ...settings, concurrency }, ...services }),
  };
}

/** The states that are sent to a render server. */
export interface SentStates {
  readonly width: number;
  /** Returns the run's longest edit. Called only if the run has no stored images. */
  readonly longest: () => Promise<LongestStates>;
}

/** See `openServers`. */
export function openRenderServer(
  run: NamedRun,
  settings: RenderEditor,
  { width, longest }: SentStates,
  services: RemoteServices,
): Promise<ServerImages<RenderRequest>> {
  return openServers(
    run,
    {
      ...renderServers(settings, width),
      prepare: async (client, within) => client.ready(within, await longest()),
      hash: (imageRequest: RenderRequest) => renderHash(settings, imageRequest),
    },
    services,
  );
}

/** See `storedImages`. The digest of the states identifies images, so the states themselves are not needed. */
export function openStoredRenders(run: NamedRun, settings: RenderEditor): ServedImages<RenderIdentity> {
  return storedImages<RenderIdentity>(run, (wanted) => renderHash(settings, wanted));
}

/** See `checkServers`. */
export function checkRenderServer(settings: RenderEditor, width: number | null): Promise<readonly string[]> {
  return checkServers(renderServers(settings, width));
}

function renderServers(settings: RenderEditor, width: number | null): CheckableServers<RenderClient> {
  return {
    name: 'render server',
    settings,
    open: ({ concurrency, ...services }) =>
      new RenderClient({ settings: { ...settings, concurrency }, width, ...services }),
  };
}

/** A line of `pictures.jsonl`. It names the image's file in `media/`. */
interface NamedImage extends RemoteExchange, Pick<StoredImage, 'refused' | 'revised'> {
  /** SHA-256 of the PNG file. Null if the server refused the request. */
  readonly image: string | null;
}

export const imageForm = lineForm<NamedImage>({
  key: 'key',
  requestHash: 'request_hash',
  image: 'image',
  refused: 'refused',
  revised: 'revised_prompt',
});

/** The images of a run: files, which any rank may write, and the lines that name them. */
class RunImages implements ImageStore {
  constructor(
    private readonly paths: RunPaths,
    private readonly lines: Exchanges<NamedImage>,
  ) {}

  async find(key: string, requestHash: string): Promise<StoredImage | undefined> {
    const line = this.lines.find(key, requestHash);
    if (line === undefined) return undefined;
    if (line.image === null) return { ...line, image: null };
    const image = await this.#read(line.image);
    return image === null ? undefined : { ...line, image };
  }

  async put({ image, ...line }: StoredImage): Promise<void> {
    const name = image === null ? null : storePng(this.paths, await encodePng(image));
    this.lines.put({ ...line, image: name });
  }

  /** Null if the file no longer exists or does not match its name. */
  async #read(name: string): Promise<RgbImage | null> {
    const path = this.paths.media(name);
    const bytes = readPlain(path);
    if (bytes === null) return null;
    return sha256(bytes) === name ? decodeImage(bytes, path) : null;
  }
}
