import { spawnSync } from 'node:child_process';
import { readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { frameFolder, writeFrame } from '../../../src/run/frame/write.js';
import { findReported } from '../../../src/run/report/find.js';
import { RunFolder } from '../../cli/run_directory.js';
import { testFolder } from '../../support/folder.js';
import { experiment } from './framed.js';

/** A Python with what the page names, where there is one. */
const python = process.env['EDITRL_TEST_PYTHON'] ?? 'python3';
const probe = spawnSync(python, ['-c', 'import duckdb, pandas, polars, pyarrow'], { encoding: 'utf8' });
const missing = probe.status === 0 ? null : (probe.stderr?.trim().split('\n').at(-1) ?? `there is no ${python}`);
const why = missing === null ? '' : ` (skipped: ${missing}; EDITRL_TEST_PYTHON names another Python)`;
const folder = testFolder('frame-python');

/** The Python of the page, which names the runs of the test instead. */
function linesOfPage(): string[] {
  const page = readFileSync('docs/your_data.md', 'utf8');
  return [...page.matchAll(/```python\n([\s\S]*?)```/g)]
    .flatMap(([, block]) => block.split('\n'))
    .filter(Boolean)
    .map((line) => line.replaceAll('reward_ablation', 'x').replaceAll('sft_s__rl_s', 'x__kl-0__seed-1'));
}

const types = `
import json, sys
out = {}
for name in ["metrics", "episodes", "judgements"]:
    for frame in ["runs/x.frame", "runs/x__kl-1__seed-1/frame"]:
        path = f"{frame}/{name}.parquet"
        relation = duckdb.sql(f"from '{path}'")
        out[path] = {
            "pandas": {k: str(v) for k, v in pd.read_parquet(path).dtypes.items()},
            "polars": {k: str(v) for k, v in pl.read_parquet(path).schema.items()},
            "duckdb": dict(zip(relation.columns, map(str, relation.types))),
        }
loss = pl.read_parquet("runs/x.frame/metrics.parquet")["policy/loss"]
episodes = pd.read_parquet("runs/x.frame/episodes.parquet")
out["loss"] = [str(x) for x in loss.to_list()]
out["positive"] = duckdb.sql("""select count(*) from 'runs/x.frame/metrics.parquet' where "policy/loss" > 0.6""").fetchall()[0][0]
out["tokens"] = [None if x is None else list(map(int, x)) for x in episodes["tokens"]]
print(json.dumps(out))
`;

it.skipIf(missing !== null)(`every line of docs/your_data.md runs, and types are the same without rows${why}`, () => {
  const runs = new RunFolder();
  try {
    experiment(runs);
    symlinkSync(runs.dir, join(folder, 'runs'));
    for (const name of ['x', 'x__kl-0__seed-1', 'x__kl-1__seed-1']) {
      const found = findReported(name, runs.dir);
      writeFrame(found, frameFolder(found));
    }
    const lines = linesOfPage();
    expect(lines.length).toBeGreaterThanOrEqual(12);
    // A line of the page that only makes a query is carried out too.
    const program = lines.map((line) => (/^import/.test(line) ? line : `repr(${line})`)).join('\n') + types;
    const ran = spawnSync(python, ['-c', program], { encoding: 'utf8', cwd: folder });
    expect(ran.status, ran.stderr).toBe(0);
    const { loss, positive, tokens, ...tables } = JSON.parse(ran.stdout) as Record<string, Record<string, object>>;
    expect([loss, tokens]).toEqual([
      ['0.5', 'nan', 'inf'],
      [[1, 2], null, null],
    ]);
    expect(positive).toBe(2);
    for (const name of ['metrics', 'episodes', 'judgements']) {
      const filled = tables[`runs/x.frame/${name}.parquet`];
      const empty = tables[`runs/x__kl-1__seed-1/frame/${name}.parquet`];
      for (const [reader, columns] of Object.entries(empty)) expect(filled[reader]).toMatchObject(columns);
    }
  } finally {
    runs.remove();
  }
});
