/** The thread of `ThreadSender`: a `LocalSender` that is spoken to in messages. */
import { parentPort, workerData } from 'node:worker_threads';
import { must } from '../core/errors.js';
import { JudgeImages } from './judge_images.js';
import { LocalSender, type SenderOptions, type SentQuery } from './sender.js';
import type { FromThread, PlainQuery, ToThread } from './sender_thread.js';

const port = must(parentPort, 'the port to the thread that asks');
const sender = new LocalSender(workerData as SenderOptions);
/** Pictures whose encodings are kept: those of a group share their source, and questions about an edit share the edit. */
const images = new JudgeImages();
const underWay = new Map<number, AbortController>();

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
  const shown = messages.map(({ role, parts }) => ({
    role,
    parts: parts.map((part) => (typeof part === 'string' ? part : images.adopt(part))),
  }));
  return { ...rest, messages: shown };
}
