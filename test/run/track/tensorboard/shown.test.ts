/** Pictures and texts in the event file, read by the numbers of the messages' fields. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { expect, it } from 'vitest';
import { encodePlainPng } from '../../../../src/core/images/png.js';
import { storePng } from '../../../../src/run/episodes.js';
import { writeTensorboard } from '../../../../src/run/track/tensorboard/forward.js';
import { testFolders } from '../../../support/folder.js';
import { FakeRun } from '../run_directory.js';

const folder = testFolders('tensorboard_shown');

type Field = bigint | Buffer;
type Message = Map<number, Field[]>;

/** The fields of a message: numbers as their bits, all else as bytes. */
function fieldsOf(bytes: Uint8Array): Message {
  const reader = new BinaryReader(bytes);
  const fields: Message = new Map();
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag();
    const value = {
      [WireType.Varint]: () => BigInt(reader.uint64()),
      [WireType.Bit64]: () => BigInt(reader.fixed64()),
      [WireType.Bit32]: () => BigInt(reader.fixed32()),
      [WireType.LengthDelimited]: () => Buffer.from(reader.bytes()),
    }[type as number];
    if (value === undefined) throw new Error(`field ${number} has the type ${type}`);
    fields.set(number, [...(fields.get(number) ?? []), value()]);
  }
  return fields;
}

/** The message at the end of a path of field numbers; empty where there is none. */
function within(message: Message, ...path: readonly number[]): Message {
  return path.reduce((at, number) => fieldsOf((at.get(number)?.[0] as Buffer | undefined) ?? Buffer.alloc(0)), message);
}

function textsOf(message: Message, number: number): string[] {
  return (message.get(number) ?? []).map(String);
}

interface Value {
  readonly step: number;
  readonly plugin: string;
  readonly shape: readonly number[];
  readonly strings: readonly Buffer[];
}

/** The tensors of the run's file by their tags; of several the last. */
function tensorsOf(run: FakeRun): Record<string, Value> {
  const bytes = readFileSync(join(run.paths.tensorboardDir, readdirSync(run.paths.tensorboardDir)[0]));
  const found: Record<string, Value> = {};
  for (let at = 0; at < bytes.length;) {
    const length = Number(bytes.readBigUInt64LE(at));
    const event = fieldsOf(bytes.subarray(at + 12, at + 12 + length));
    for (const one of within(event, 5).get(1) ?? []) {
      const value = fieldsOf(one as Buffer);
      const plugin = within(value, 9, 1);
      if (plugin.size === 0) continue;
      found[textsOf(value, 1)[0]] = {
        step: Number(event.get(2)?.[0] ?? 0),
        plugin: textsOf(plugin, 1)[0],
        shape: (within(value, 8, 2).get(2) ?? []).map((size) => Number(fieldsOf(size as Buffer).get(1)?.[0])),
        strings: (within(value, 8).get(8) ?? []) as Buffer[],
      };
    }
    at += length + 16;
  }
  return found;
}

async function write(run: FakeRun): Promise<void> {
  await writeTensorboard({ paths: run.paths, record: run.record, ending: AbortSignal.abort(), everyMs: 5 });
}

const scored = { kind: 'scored', value: 0.5, normalised: 0.5, parts: {} };

it('has the images of episodes as they are, and their words as a table', async () => {
  const run = new FakeRun(folder());
  const pngs = [2, 4].map((width) => encodePlainPng({ width, height: 3, data: new Uint8Array(width * 9).fill(width) }));
  const [first, second] = pngs.map((png) => storePng(run.paths, png));
  run.episodes(1, [
    { sample: 'a', instruction: 'a <b> *c*', edited: first, outcome: scored, advantage: 1 },
    { sample: 'b', instruction: 'x_y', edited: second, outcome: scored },
    { sample: 'c', instruction: 'gone', edited: 'f'.repeat(64), outcome: scored },
  ]);
  const held = { sample: 'a', instruction: 'q', text: 'yes', expected: 'no', outcome: scored };
  run.heldOutEpisodes(2, [{ key: 'validation/2/words/greedy/0', ...held }]);
  run.iterations(1, 2);
  await write(run);
  const { 'episodes/edited': pictures, 'episodes/table': table, 'validation/table': validation } = tensorsOf(run);
  expect(pictures).toMatchObject({ step: 1, plugin: 'images', shape: [4] });
  // The size of the first, then the files.
  expect(pictures.strings.slice(0, 2).map(String)).toEqual(['2', '3']);
  expect(pictures.strings.slice(2)).toEqual(pngs.map((png) => Buffer.from(png)));
  expect(table).toMatchObject({ step: 1, plugin: 'text', shape: [4, 8] });
  expect(table.strings.map(String).slice(0, 16)).toEqual([
    ...['iteration', 'sample', 'sampling', 'instruction', 'answer', 'outcome', 'reward', 'advantage'],
    ...['1', 'a', 'sampled', 'a &lt;b> \\*c\\*', '', 'scored', '0.5', '1'],
  ]);
  expect(validation).toMatchObject({ step: 2, shape: [2, 9] });
  expect(validation.strings.map(String).slice(9)).toEqual(['2', 'a', 'greedy', 'q', 'yes', 'no', 'scored', '0.5', '']);
});
