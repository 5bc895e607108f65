/** Bytes by hand against the schema: what is written, and what is read. */
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { describe, expect, it } from 'vitest';
import { replyError } from '../../../../src/train/policies/tinker/connection.js';
import {
  checkData,
  UnreadableReply,
  type Datum,
  passFromProto,
  sampleFromProto,
  toJson,
  toProto,
} from '../../../../src/train/policies/tinker/wire.js';

const datum: Datum = {
  input: [{ type: 'text', tokens: Int32Array.of(5, 6) }],
  lossInputs: { target_tokens: Int32Array.of(6, -1), weights: Float32Array.of(1, 0.5) },
};
const pass = { modelId: 'm', seqId: 1, data: [datum], loss: 'ppo', config: { beta: 2 }, forwardOnly: true };

const hexOf = (body: Iterable<Uint8Array>): string => Buffer.concat([...body]).toString('hex');

describe('a pass', () => {
  it('is read from the arrays themselves, as often as it is sent, and knows its length', () => {
    const body = toProto(pass);
    const [first, second] = [[...body], [...body]];
    expect(hexOf(second)).toBe(hexOf(first));
    expect(body.byteLength).toBe(Buffer.concat(first).length);
    const [chunk] = datum.input;
    const tokens = chunk.type === 'text' ? chunk.tokens : new Int32Array();
    const { weights } = datum.lossInputs;
    for (const { buffer } of [tokens, weights]) expect(first.some((piece) => piece.buffer === buffer)).toBe(true);
  });

  it('is written as the schema has it', () => {
    const f = (bits: string): string => bits.replaceAll(' ', '');
    const target = f('0a10 0600000000000000 ffffffffffffffff 1802 220102');
    const weights = f('0a08 0000803f 0000003f 1801 220102');
    const datumHex = f(
      `0a0c 0a0a 0a08 05000000 06000000 1228 0a0d ${Buffer.from('target_tokens').toString('hex')} 1217 ${target}` +
        `121a 0a07 ${Buffer.from('weights').toString('hex')} 120f ${weights}`,
    );
    const two = '0000000000000040';
    const expected = f(
      `0a016d 1001 1a54 ${datumHex} 220370706f 2a0f 0a0462657461 11${two} 3a11 0a0462657461 1209 09${two} 3001`,
    );
    expect(hexOf(toProto(pass))).toBe(expected);
  });

  it('with an image is written as the schema has it, in both dialects', () => {
    const image = { type: 'image', data: Uint8Array.of(1, 2), format: 'png', expectedTokens: 3 } as const;
    const input = [
      { type: 'text', tokens: Int32Array.of(5) },
      image,
      { type: 'text', tokens: Int32Array.of(6) },
    ] as const;
    const seen = {
      ...pass,
      config: {},
      data: [{ input, lossInputs: { target_tokens: Int32Array.of(0, 0, 0, 6, 7) } }],
    };
    const chunks = '0a08 0a06 0a04 05000000 0a0d 120b 0a02 0102 1203 706e67 1803 0a08 0a06 0a04 06000000'.replaceAll(
      ' ',
      '',
    );
    expect(hexOf(toProto(seen))).toContain(chunks);
    const json = JSON.parse(toJson(seen)) as { forward_input: { data: { model_input: { chunks: object[] } }[] } };
    expect(json.forward_input.data[0].model_input.chunks[1]).toEqual({
      type: 'image',
      data: 'AQI=',
      format: 'png',
      expected_tokens: 3,
    });
  });

  it('is written as JSON', () => {
    expect(JSON.parse(toJson({ ...pass, forwardOnly: false }))).toEqual({
      model_id: 'm',
      seq_id: 1,
      forward_backward_input: {
        data: [
          {
            model_input: { chunks: [{ type: 'encoded_text', tokens: [5, 6] }] },
            loss_fn_inputs: {
              target_tokens: { data: [6, -1], dtype: 'int64', shape: [2] },
              weights: { data: [1, 0.5], dtype: 'float32', shape: [2] },
            },
          },
        ],
        loss_fn: 'ppo',
        loss_fn_config: { beta: 2 },
      },
    });
  });

  it('is rejected without data, tokens or targets, with other lengths and numbers that are not finite', () => {
    const { input, lossInputs } = datum;
    expect(() => checkData([])).toThrow('without data');
    expect(() => checkData([{ input: [], lossInputs }])).toThrow('datum 0 has no tokens');
    expect(() => checkData([datum, { input, lossInputs: {} }])).toThrow('datum 1 has no target_tokens');
    expect(() => checkData([{ input, lossInputs: { ...lossInputs, weights: Float32Array.of(1) } }])).toThrow(
      'datum 0 has 1 weights for 2 positions',
    );
    expect(() => checkData([{ input, lossInputs: { ...lossInputs, weights: Float32Array.of(1, NaN) } }])).toThrow(
      'weights[1] is NaN',
    );
    expect(() => checkData([datum])).not.toThrow();
  });
});

/** A message of fields with bytes. */
function message(...fields: readonly (readonly [number, Uint8Array | string | number])[]): Uint8Array {
  const writer = new BinaryWriter();
  for (const [field, value] of fields) {
    if (typeof value === 'number') writer.tag(field, WireType.Varint).int32(value);
    else if (typeof value === 'string') writer.tag(field, WireType.LengthDelimited).string(value);
    else writer.tag(field, WireType.LengthDelimited).bytes(value);
  }
  return writer.finish();
}
const floats = (...values: readonly number[]): Uint8Array => new Uint8Array(Float32Array.from(values).buffer);
const longs = (...values: readonly number[]): Uint8Array => new Uint8Array(BigInt64Array.from(values, BigInt).buffer);

describe('results', () => {
  it('of passes are split by their offsets', () => {
    const tensor = message([1, floats(-1, -2, -3)], [2, longs(0, 4, 12)], [3, 1]);
    const record = message([2, message([1, 'logprobs'], [2, tensor])], [3, 2]);
    const { outputs } = passFromProto(message([1, 'scalar'], [2, record]));
    expect(outputs.map(({ logprobs }) => [...logprobs])).toEqual([[-1], [-2, -3]]);
    const halves = message([1, new Uint8Array(Uint16Array.of(0xbf80, 0xc000).buffer)], [2, longs(0, 2, 4)], [3, 4]);
    const inHalves = passFromProto(message([2, message([2, message([1, 'logprobs'], [2, halves])], [3, 2])]));
    expect(inHalves.outputs.map(({ logprobs }) => [...logprobs])).toEqual([[-1], [-2]]);
    const wrong = message([1, floats(-1, -2, -3)], [2, longs(0, 4, 16)], [3, 1]);
    const bad = message([2, message([2, message([1, 'logprobs'], [2, wrong])], [3, 2])]);
    expect(() => passFromProto(bad)).toThrow(UnreadableReply);
    expect(() => passFromProto(Buffer.from('{"detail"'))).toThrow(UnreadableReply);
  });

  it('of samples are read', () => {
    const ids = new Uint8Array(Int32Array.of(7, 8).buffer);
    const { sequences } = sampleFromProto(message([1, message([1, 1], [2, ids], [3, floats(-1, -2)])]));
    expect(sequences).toEqual([{ tokens: Int32Array.of(7, 8), logProbs: Float64Array.of(-1, -2), stopped: false }]);
  });
});

describe('a refusal', () => {
  it.each([
    ['/forward_backward', 401, 'no', 'wrong_key'],
    ['/create_model', 400, 'Maximum number of LoRA adapters (3) reached', 'no_adapter_left'],
    ['/create_model', 400, 'LoRA rank 64 exceeds 32', 'refused_rank'],
    ['/create_model', 400, 'Base model x is not served', 'wrong_base_model'],
    ['/forward', 404, 'Not Found', 'other_version'],
    ['/forward_backward', 415, 'Unsupported', 'other_version'],
    ['/create_model', 404, 'Session not found', 'session_expired'],
    ['/asample', 400, 'Image 0: expected_tokens=4 but render returned 6 placeholder tokens', 'picture_tokens'],
    ['/asample', 422, 'only encoded_text chunks are supported, found image', 'no_pictures'],
    ['/forward_backward', 400, 'this model does not support multimodal input', 'no_pictures'],
    ['/save_weights', 409, "Checkpoint 'x' already exists", 'checkpoint_taken'],
    ['/load_weights', 404, 'Checkpoint not found', 'checkpoint_gone'],
    ['/optim_step', 404, 'Model not found', 'model_gone'],
    ['/optim_step', 400, 'bad', 'refused'],
  ])('of %s with %i %s is %s', (operation, status, message, kind) => {
    const error = replyError({ operation, status, message }, 'http://x');
    expect(error.kind).toBe(kind);
    expect(error.message).toContain(message);
  });
});
