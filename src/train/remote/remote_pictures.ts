/** Connects a run to servers that make pictures, and to the store of what they give. */
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
  type PictureReply,
  type PictureStore,
  type ServedPictures,
  ServerImages,
  type StoredPicture,
} from '../environments/served.js';
import { Exchanges } from '../../run/exchanges.js';
import { storePng } from '../../run/episodes.js';
import type { RunPaths } from '../../run/paths.js';
import type { RenderEditor } from '../../config/schema/editor.js';
import type { AskedServersSettings, ImagesServerSettings } from '../../config/schema/images_api.js';
import { type ClientServices, type NamedRun, openRemote, pathsOf, type RemoteServices } from './remote.js';

const LOOK_MS = 10_000;

/** A client for servers of one kind. */
interface PictureClient<Asked> {
  /** Base URLs. */
  readonly urls: readonly string[];
  /** Why the servers cannot be asked now, one sentence for each that cannot. Never rejects for what a server does. */
  look(within: Deadline): Promise<readonly string[]>;
  /** Draws one picture. Raises EndpointError when no server gives one within the time or the attempts. */
  draw(asked: Asked, within: Deadline): Promise<PictureReply>;
  close(): Promise<void>;
}

interface CheckableServers<Client> {
  /** Name of one of them in messages. */
  readonly name: string;
  readonly settings: AskedServersSettings & { readonly served_model: string };
  readonly open: (services: ClientServices & { readonly apiKey: string | undefined }) => Client;
}

interface PictureServers<Asked, Client> extends CheckableServers<Client> {
  /** Waits until one is there and can draw with the settings; called by rank 0 of a run that has nothing stored yet. Raises EndpointError. */
  readonly prepare: (client: Client, within: Deadline) => Promise<void>;
  /** Called on every rank once servers have drawn with the settings. */
  readonly onReady?: (client: Client) => void;
  /** SHA-256 of everything that decides a picture. */
  readonly hash: (asked: Asked) => string;
}

/**
 * Waits for the servers and, if nothing of the run is stored yet, has one unused picture drawn, so that settings they refuse are reported at once.
 * Every rank calls it. Raises ConfigError for a key that cannot be sent, EndpointError when no server gives a picture, WaitInterrupted when the run is
 * asked to stop meanwhile.
 */
async function openServers<Asked extends object, Client extends PictureClient<Asked>>(
  run: NamedRun,
  { name, settings, open, prepare, onReady, hash }: PictureServers<Asked, Client>,
  services: RemoteServices,
): Promise<ServerImages<Asked>> {
  const { client, paths, lines, replay } = await openRemote(
    run,
    {
      name: `the ${name}`,
      settings,
      open: (tools) => open({ ...tools, apiKey: process.env[settings.api_key_env] }),
      form: pictureForm,
      linesOf: ({ pictures }) => pictures,
      prepare: async (client, within, stored) => {
        if (stored > 0) return;
        await prepare(client, within);
        services.log.logger.info(`pictures are made by ${settings.served_model} at ${client.urls.join(', ')}`);
      },
    },
    services,
  );
  onReady?.(client);
  return new ServerImages({ ...replay, client, hash, store: new RunPictures(paths, lines) });
}

/** The pictures that a run has stored, for scoring its episodes again; no server is asked. */
function storedPictures<Asked extends object>(run: NamedRun, hash: (asked: Asked) => string): ServedPictures<Asked> {
  const paths = pathsOf(run, null);
  const lines = new Exchanges(paths.pictures, pictureForm, { isOwner: false, from: null });
  const store = new RunPictures(paths, lines);
  return {
    generate: (requests) =>
      Promise.all(
        requests.map(async (request) => {
          const stored = await store.find(request.key, hash(request));
          if (stored === undefined) {
            return { kind: 'unavailable', reason: 'empty', detail: 'its picture is not stored any more' };
          }
          return stored.picture === null
            ? { kind: 'unavailable', reason: 'refused', detail: stored.refused ?? '' }
            : { kind: 'made', image: stored.picture };
        }),
      ),
    close: async () => lines.close(),
  };
}

/**
 * Checks once whether servers can make a run's pictures. Raises EndpointError when none can; else returns what is wrong with some, one sentence each.
 */
async function checkServers<Asked>({
  name,
  settings,
  open,
}: CheckableServers<PictureClient<Asked>>): Promise<readonly string[]> {
  const { concurrency, api_key_env } = settings;
  const client = open({ concurrency, apiKey: process.env[api_key_env] });
  const deadline = new Deadline(systemClock, LOOK_MS);
  try {
    const found = await client.look(deadline);
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

/** The work for servers of the OpenAI images API: drawing pictures from words, or editing some. */
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
      hash: (asked) => requestHashOf(settings, asked),
    },
    services,
  );
}

/** See `storedPictures`. */
export function openStoredPictures(run: NamedRun, settings: ImagesServerSettings): ServedPictures<ImagesRequest> {
  return storedPictures<ImagesRequest>(run, (asked) => requestHashOf(settings, asked));
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

/** The states sent to a render server. */
export interface SentStates {
  readonly width: number;
  /** The run's longest edit, asked for only if nothing of the run is stored yet. */
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
      hash: (asked: RenderRequest) => renderHash(settings, asked),
    },
    services,
  );
}

/** See `storedPictures`: they are found by the digest of the states, without the states themselves. */
export function openStoredRenders(run: NamedRun, settings: RenderEditor): ServedPictures<RenderIdentity> {
  return storedPictures<RenderIdentity>(run, (wanted) => renderHash(settings, wanted));
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

/** A line of `pictures.jsonl`, which names the picture's file in `media/`. */
interface NamedPicture extends RemoteExchange, Pick<StoredPicture, 'refused' | 'revised'> {
  /** SHA-256 of the PNG file; null if the server refused to draw it. */
  readonly picture: string | null;
}

export const pictureForm = lineForm<NamedPicture>({
  key: 'key',
  requestHash: 'request_hash',
  picture: 'picture',
  refused: 'refused',
  revised: 'revised_prompt',
});

/** The pictures of a run: files, which any rank may write, and the lines that name them. */
class RunPictures implements PictureStore {
  constructor(
    private readonly paths: RunPaths,
    private readonly lines: Exchanges<NamedPicture>,
  ) {}

  async find(key: string, requestHash: string): Promise<StoredPicture | undefined> {
    const line = this.lines.find(key, requestHash);
    if (line === undefined) return undefined;
    if (line.picture === null) return { ...line, picture: null };
    const picture = await this.#read(line.picture);
    return picture === null ? undefined : { ...line, picture };
  }

  async put({ picture, ...line }: StoredPicture): Promise<void> {
    const name = picture === null ? null : storePng(this.paths, await encodePng(picture));
    this.lines.put({ ...line, picture: name });
  }

  /** Null if the file is gone, or its content does not match its name. */
  async #read(name: string): Promise<RgbImage | null> {
    const path = this.paths.media(name);
    const bytes = readPlain(path);
    if (bytes === null) return null;
    return sha256(bytes) === name ? decodeImage(bytes, path) : null;
  }
}
