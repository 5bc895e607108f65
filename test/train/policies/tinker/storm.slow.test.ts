/** A thousand failures of a training server, and the weights are those without one. */
import { expect, it } from 'vitest';
import { StubTinker } from './stub_tinker.js';
import { trained } from './lessons.js';
import { servedPolicy, VOCABULARY } from './served.js';
import { storm } from './storm.js';

const ITERATIONS = 130;
const KINDS = ['lost', 'repeated', 'late', 'cut', 'half', '408', '429', '500', '503', 'forgotten', 'unknown'];

it('ends at the same weights through a thousand faults, and takes no step twice', async () => {
  const [plain, stub] = await Promise.all(
    [1, 2].map(() => new StubTinker({ vocabulary: VOCABULARY, dialect: 'proto', mostModels: 64 }).listen()),
  );
  const [straight, policy] = [servedPolicy(plain), servedPolicy(stub)];
  await trained(straight, 0, ITERATIONS);
  const counts = storm(stub, 0.6);
  await trained(policy, 0, ITERATIONS);
  stub.fault = () => null;
  expect([...counts.keys()].sort()).toEqual(KINDS.sort());
  for (const [kind, count] of counts) expect(count, kind).toBeGreaterThan(20);
  expect([...counts.values()].reduce((sum, one) => sum + one, 0)).toBeGreaterThan(1000);
  expect(stub.steps).toBe(ITERATIONS);
  expect(stub.weights).toEqual(plain.weights);
  expect(await policy.checksum()).toBe(await straight.checksum());
  await Promise.all([policy.dispose(), straight.dispose()]);
  await Promise.all([plain.close(), stub.close()]);
}, 120_000);
