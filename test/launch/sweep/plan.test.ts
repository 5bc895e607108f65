import { describe, expect, it } from 'vitest';
import { planJobs, type SweepMatrix } from '../../../src/launch/sweep/plan.js';
import { smallSettings } from '../../recipes/prompt_enhance/small.js';

const gpus = [0, 1].map((index) => ({ index, name: 'card', uuid: `GPU-${index}`, memoryBytes: 100, usedBytes: 0 }));
const machine = { gpus };

function matrix(launch: object, provider = 'cuda'): SweepMatrix {
  const engine = { provider, threads: 1 };
  const settings = smallSettings({ launch, policy: { ...smallSettings().policy, engine } });
  const config = { settings } as never;
  return { name: 'all', cells: [{ run_name: 'one', axes: {}, parents: [], config }], parents: [] };
}

describe('the jobs of a sweep', () => {
  it('are rejected where a run places its parts on GPUs itself', () => {
    const placement = { policy: 0, image: 1 };
    expect(() => planJobs(matrix({ placement }), machine)).toThrow(
      'one has a placement, but a sweep assigns GPUs to its runs itself',
    );
    expect(planJobs(matrix({}), machine)).toMatchObject([{ name: 'one', device: 'gpu' }]);
    // Nothing is placed on the CPU, and each Slurm job has a machine of its own.
    expect(planJobs(matrix({ placement }), { gpus: [] })).toMatchObject([{ device: 'cpu' }]);
    expect(planJobs(matrix({ placement, backend: 'slurm' }), machine)).toMatchObject([{ device: 'gpu' }]);
  });
});
