import { expect, it } from 'vitest';
import { eventEncoder } from '../../../../src/run/track/tensorboard/events.js';

const at = 1767225600.5;
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

// What the writer of TensorBoard 2.21 makes of the same events.
it('writes the bytes that TensorBoard writes', async () => {
  const encoder = await eventEncoder();
  expect(hex(encoder.version(at))).toBe(
    '1800000000000000a37f4b2209000020406e55da411a0d627261696e2e4576656e743a3284ffcb71',
  );
  expect(hex(encoder.step({ at, step: 300, scalars: { 'reward/mean': 0.1, 'policy/loss': NaN } }))).toBe(
    '36000000000000004f578cef09000020406e55da4110ac022a280a120a0b7265776172642f6d65616e15cdcccc3d0a120a0b706f6c6963792f6c6f7373150000c07f4e12c600',
  );
  expect(hex(encoder.restart(at, 11))).toBe('0f000000000000006d532b0909000020406e55da41100b3a0208017ec80558');
});

it('writes numbers beyond single precision as infinite', async () => {
  const encoder = await eventEncoder();
  expect(encoder.step({ at, step: 1, scalars: { x: 1e300 } })).toEqual(
    encoder.step({ at, step: 1, scalars: { x: Infinity } }),
  );
});
