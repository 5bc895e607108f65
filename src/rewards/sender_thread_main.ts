/** The thread of `ThreadSender`: a `LocalSender` that is spoken to in messages. */
import { parentPort, workerData } from 'node:worker_threads';
import { must } from '../core/errors.js';
import { JudgeImages, type JudgeImage, type ShownPicture } from './judge_images.js';
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
  if (message.kind === 'abort') underWay.get(message.id)?.abort();
  else void answer(message);
});

async function answer(message: Exclude<ToThread, { kind: 'abort' }>): Promise<void> {
  const { id } = message;
  const controller = new AbortController();
  underWay.set(id, controller);
  try {
    say({ id, answer: await work(message, controller.signal) });
  } catch (error) {
    say({ id, failed: error instanceof Error ? (error.stack ?? error.message) : String(error) });
  } finally {
    underWay.delete(id);
    if ('query' in message) release(message.query);
  }
}

function work(message: Exclude<ToThread, { kind: 'abort' }>, signal: AbortSignal): Promise<unknown> {
  switch (message.kind) {
    case 'send':
      return sender.send(adopted(message.query), message.sending, signal);
    case 'probe':
      return sender.probe(adopted(message.query), message.withinMs, signal);
    case 'close':
      return sender.close();
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

function release({ messages }: PlainQuery): void {
  for (const part of messages.flatMap(({ parts }) => parts)) {
    if (typeof part === 'string') continue;
    const known = shown.get(part.digest);
    if (known !== undefined && --known.users === 0) shown.delete(part.digest);
  }
}
