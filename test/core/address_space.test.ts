import { expect, it } from 'vitest';
import { addressSpaceAdvice, addressSpaceLimit } from '../../src/core/process.js';

const limits = 'Max file locks            unlimited            unlimited            locks\n';

it('reads the limit on the address space', () => {
  expect(
    addressSpaceLimit(`${limits}Max address space         6144000000           6144000000           bytes\n`),
  ).toBe(6144000000);
  expect(
    addressSpaceLimit(`${limits}Max address space         unlimited            unlimited            bytes\n`),
  ).toBeNull();
  expect(addressSpaceLimit('')).toBeNull();
});

it.each([
  'WebAssembly.instantiate(): Out of memory: Cannot allocate Wasm memory for new instance',
  'Array buffer allocation failed',
  'spawn ENOMEM',
  'std::bad_alloc',
])('names the limit where %j', (message) => {
  expect(addressSpaceAdvice(new RangeError(message), 6 * 2 ** 30)).toContain('6.0 GiB (ulimit -v)');
  expect(addressSpaceAdvice(new RangeError(message), null)).toBeNull();
  expect(addressSpaceAdvice(new Error('something else'), 6 * 2 ** 30)).toBeNull();
});
