/** A training server that computes nothing: `node tinker_process.js DIALECT TOKENS`. It prints its address, and ends when its standard input is closed. */
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { Message } from '../../src/train/policies/tinker/wire.js';

const [, , dialect, tokens] = process.argv;
const length = Number(tokens);
/** The time of its computation, in which other programs can inspect the request. */
const COMPUTES_MS = 300;
/** Occurs once in each datum. */
const NAME = Buffer.from('target_tokens');

let last = 0;

const server = createServer((request, response) => {
  void answer(request).then((body) => {
    const isBytes = Buffer.isBuffer(body);
    response.writeHead(200, { 'content-type': isBytes ? 'application/x-protobuf' : 'application/json' }).end(body);
  });
});
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
process.stdin.on('end', () => process.exit(0)).resume();

async function answer(request: IncomingMessage): Promise<string | Buffer> {
  const path = (request.url ?? '').replace('/api/v1', '');
  if (path === '/forward_backward') {
    last = await countIn(request);
    return '{"request_id": "pass"}';
  }
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  if (path === '/create_session') return '{"session_id": "s"}';
  if (path !== '/retrieve_future') return '{"request_id": "other"}';
  const { request_id } = JSON.parse(Buffer.concat(pieces).toString('utf8')) as { request_id: string };
  if (request_id === 'other') return '{"model_id": "m"}';
  await setTimeout(COMPUTES_MS);
  return dialect === 'json' ? inJson() : inProto();
}

/** A name may be split between two chunks. */
async function countIn(request: IncomingMessage): Promise<number> {
  let [count, rest] = [0, Buffer.alloc(0)];
  for await (const piece of request) {
    const all = Buffer.concat([rest, piece as Buffer]);
    let from = 0;
    for (let at = all.indexOf(NAME); at >= 0; at = all.indexOf(NAME, from)) {
      count += 1;
      from = at + NAME.length;
    }
    rest = all.subarray(Math.max(from, all.length - NAME.length + 1));
  }
  return count;
}

function inProto(): Buffer {
  const data = new Float32Array(length * last).fill(-1.25);
  const offsets = BigInt64Array.from({ length: last + 1 }, (_, i) => BigInt(4 * length * i));
  const tensor = new Message().bytes(1, new Uint8Array(data.buffer)).bytes(2, new Uint8Array(offsets.buffer)).int(3, 1);
  const field = new Message().text(1, 'logprobs').message(2, tensor);
  const body = new Message().message(2, new Message().message(2, field).int(3, last)).toBody();
  return Buffer.concat([...body]);
}

function inJson(): string {
  const logprobs = { data: new Array<number>(length).fill(-1.25) };
  return JSON.stringify({ loss_fn_outputs: Array.from({ length: last }, () => ({ logprobs })), metrics: {} });
}
