import { expect, it } from 'vitest';
import type { RunHandle } from '../../src/run/claim/claim.js';
import type { RunLog } from '../../src/run/logs.js';
import type { RecordedData } from '../../src/run/record.js';
import { recordDatasets } from '../../src/train/context.js';

interface Source {
  readonly samples: readonly string[];
  readonly length: number;
  readonly remark: null;
  readonly digest: { readonly ids: string; readonly files: null };
}

const source = (...samples: readonly string[]): Source => ({
  samples,
  length: samples.length,
  remark: null,
  digest: { ids: samples.join(), files: null },
});

/** What a run says and records of its datasets when it opens them. */
async function opened(
  data: { readonly train: readonly string[]; readonly validation: readonly string[] },
  sources: readonly Source[],
  checkpoint: object | null = null,
): Promise<{ said: string[]; recorded: Record<string, RecordedData> }> {
  const said: string[] = [];
  const recorded: Record<string, RecordedData> = {};
  const say = (line: string): unknown => said.push(line);
  const handle = {
    checkpoint,
    noteData: (noted: Record<string, RecordedData>) => Object.assign(recorded, noted),
  } as unknown as RunHandle;
  const log = { logger: { warn: say, info: say } } as unknown as RunLog;
  const listed = (path: string) => ({ path: `/data/${path}`, coefficient: null });
  const settings = {
    data: { dir: '/data', train: data.train.map(listed), validation: data.validation.map(listed) },
    validation: { prompts: 3 },
  };
  await recordDatasets({ handle, log }, settings as never, sources, {
    at: ({ samples }, index) => ({ id: `${index}`, words: samples[index], image: null }),
    kept: 'memory',
  });
  return { said, recorded };
}

const TWO = { train: ['s/train'], validation: ['s/held', 'c/held'] };
const SOURCES = [source('a', 'b', 'c', 'd'), source('x', 'b', 'c', 'a'), source('y')];

it('warns once of held-out samples that are trained on, and records how many of those that are evaluated', async () => {
  const { said, recorded } = await opened(TWO, SOURCES);
  // The fourth sample of s/held is not evaluated.
  expect(said).toEqual([
    expect.stringMatching(/^2 of 4 held-out samples are also in the training data.*: 1 of s\/held is 1 of s\/train$/),
  ]);
  expect(recorded['s/held']).toEqual({ samples: 4, ids: 'x,b,c,a', files: null, in_training: 2 });
  expect(recorded['c/held']).toEqual({ samples: 1, ids: 'y', files: null });
  expect(recorded['s/train']).toEqual({ samples: 4, ids: 'a,b,c,d', files: null });
});

it('reports nothing of a dataset that the config names for both, and records it', async () => {
  const same = source('a', 'b');
  const { said, recorded } = await opened({ train: ['s'], validation: ['s'] }, [same, same]);
  expect(said).toEqual([]);
  expect(recorded['s'].in_training).toBe(2);
});
