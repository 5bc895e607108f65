import { readdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { expect, test } from 'vitest';
import { allCores, Session } from '../../../src/compute/onnx/session.js';
import { tanh } from '../../../src/compute/graph/build.js';
import { Graph } from '../../../src/compute/graph/ir.js';

test('there is a thread for each core that this process may use', () => {
  expect(allCores()).toBeGreaterThan(0);
  expect(allCores()).toBeLessThanOrEqual(availableParallelism());
});

test.skipIf(process.platform !== 'linux' || availableParallelism() === 1)(
  "no thread of a session is tied to fewer cores than the process has (Linux' /proc, two cores)",
  async () => {
    const graph = new Graph('threads');
    const session = await Session.compile(graph, { y: tanh(graph.input('x', [4])) });
    try {
      const allowed = readdirSync('/proc/self/task').map(
        (thread) => /^Cpus_allowed_list:\t(.*)$/m.exec(readFileSync(`/proc/self/task/${thread}/status`, 'utf8'))?.[1],
      );
      const own = /^Cpus_allowed_list:\t(.*)$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1];
      expect(new Set(allowed)).toEqual(new Set([own]));
    } finally {
      await session.dispose();
    }
  },
);
