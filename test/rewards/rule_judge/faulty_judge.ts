/** A rule judge behind a proxy that injects faults. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { startJudge } from '../../../src/rewards/rule_judge/server.js';
import type { Answer } from '../../../src/rewards/rule_judge/protocol.js';
import type { ChatContent, Effect, FaultSource } from './faults.js';

const json = { 'content-type': 'application/json' };
const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

interface Completion {
  readonly choices: { message: { content: string | null }; finish_reason: string }[];
}

/** The scores and the reasoning of a sound reply. Null for one without scores. */
function answerOf(content: string): Answer | null {
  const tag = /^(.*)\n<score>([\d.]+)<\/score>$/s.exec(content);
  if (tag !== null) return { form: 'tag', scores: [Number(tag[2])], reasoning: tag[1] };
  try {
    const { score, reasoning } = JSON.parse(content) as { score: number[]; reasoning: string };
    return { form: 'list', scores: score, reasoning };
  } catch {
    return null;
  }
}

function garbled(completion: Completion, garble: (answer: Answer) => ChatContent): unknown {
  const answer = answerOf(completion.choices[0].message.content ?? '');
  if (answer === null) return completion;
  const reply = garble(answer);
  if ('choices' in reply) return { ...completion, choices: [] };
  const { content } = reply;
  const finish_reason = content === null ? 'stop' : reply.finishReason;
  const choices = completion.choices.map((choice) => ({
    ...choice,
    message: { ...choice.message, content },
    finish_reason,
  }));
  return { ...completion, choices };
}

export async function startFaultyJudge(
  faults: FaultSource,
): Promise<{ readonly url: string; close: () => Promise<void> }> {
  const judge = await startJudge({ port: 0, host: '127.0.0.1' });
  let [chats, listings] = [0, 0];
  let revival: NodeJS.Timeout | undefined;
  const server = createServer((request, response) => void serve(request, response).catch(() => response.destroy()));
  const stop = (): void => void server.close().closeAllConnections();

  function die(milliseconds: number): void {
    if (revival !== undefined) return;
    const { port } = server.address() as AddressInfo;
    stop();
    revival = setTimeout(() => {
      server.listen(port, '127.0.0.1');
      revival = undefined;
    }, milliseconds);
  }

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const isChat = request.method === 'POST';
    const effect: Effect = (isChat ? faults.at(chats++) : null)?.effect ?? { does: 'delay', milliseconds: 0 };
    if (effect.does === 'hang') return;
    if (effect.does === 'reset') return void request.socket.resetAndDestroy();
    if (effect.does === 'stall') return void response.writeHead(200, json).write('{"choices": [');
    if (effect.does === 'die') return die(effect.milliseconds);
    if (effect.does === 'reply') return void response.writeHead(effect.status, effect.headers).end(effect.body);
    const reply = await fetch(new URL(request.url ?? '/', judge.url), {
      method: request.method ?? 'GET',
      ...(isChat ? { body: Buffer.concat(chunks), headers: json } : {}),
    });
    const text = await reply.text();
    if (effect.does === 'delay') await pause(effect.milliseconds);
    const hides = !isChat && faults.hidesModel(listings++);
    const body =
      effect.does === 'garble' && reply.ok
        ? JSON.stringify(garbled(JSON.parse(text) as Completion, effect.garble))
        : hides
          ? '{"object":"list","data":[{"id":"another-model"}]}'
          : text;
    response.writeHead(reply.status, json).end(body);
  }

  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    close: async () => {
      clearTimeout(revival);
      stop();
      await judge.close();
    },
  };
}
