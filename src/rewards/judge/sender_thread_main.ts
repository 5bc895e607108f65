/** The thread of `ThreadSender`: a `LocalSender` that is spoken to in messages. */
import { parentPort, workerData } from 'node:worker_threads';
import { must } from '../../core/errors.js';
import { JudgeImages, type JudgeImage, type ShownPicture } from './images.js';
import { LocalSender, type SenderOptions, type SentQuery } from './sender.js';
import type { FromThread, PlainQuery, ToThread } from './sender_thread.js';

const port = must(parentPort, 'the port to the thread that asks');
const sender = new LocalSender(workerData as SenderOptions);
const images = new JudgeImages();
/**
 * Pictures of questions under way, by digest: a group's questions share their source and those about an edit the edit, and of all the copies that
 * came with them one is kept.
 */
const shown = new Map<string, { readonly image: JudgeImage; users: number }>();
const underWay = new Map<number, AbortController>();

// Ends the thread, and so tells the one that asks.
port.on('messageerror', (error) => {
  throw error;
});
port.on('message', (message: ToThread) => {
  if (message.kind === 'abort') for (const id of message.ids) underWay.get(id)?.abort();
  else void answer(message.id, taken(message));
});

/** What a message asks for. It does not hold the message, whose copies of pictures are free to go. */
interface Work {
  readonly digests: readonly string[];
  readonly run: (signal: AbortSignal) => Promise<unknown>;
}

function taken(message: Exclude<ToThread, { kind: 'abort' }>): Work {
  if (message.kind === 'close') return { digests: [], run: () => sender.close() };
  const query = adopted(message.query);
  const digests = query.messages.flatMap(({ parts }) =>
    parts.flatMap((part) => (typeof part === 'string' ? [] : [part.digest])),
  );
  if (message.kind === 'probe') {
    const { withinMs } = message;
    return { digests, run: (signal) => sender.probe(query, withinMs, signal) };
  }
  const { sending } = message;
  return { digests, run: (signal) => sender.send(query, sending, signal) };
}

async function answer(id: number, { digests, run }: Work): Promise<void> {
  const controller = new AbortController();
  underWay.set(id, controller);
  try {
    say({ id, answer: await run(controller.signal) });
  } catch (error) {
    say({ id, failed: error instanceof Error ? (error.stack ?? error.message) : String(error) });
  } finally {
    underWay.delete(id);
    digests.forEach(release);
  }
}

function say(message: FromThread): void {
  port.postMessage(message);
}

function adopted({ messages, ...rest }: PlainQuery): SentQuery {
  const kept = messages.map(({ role, parts }) => ({
    role,
    parts: parts.map((part) => (typeof part === 'string' ? part : adopt(part))),
  }));
  return { ...rest, messages: kept };
}

function adopt(picture: ShownPicture): JudgeImage {
  const known = shown.get(picture.digest) ?? { image: images.adopt(picture), users: 0 };
  known.users++;
  shown.set(picture.digest, known);
  return known.image;
}

function release(digest: string): void {
  const known = shown.get(digest);
  if (known !== undefined && --known.users === 0) shown.delete(digest);
}
