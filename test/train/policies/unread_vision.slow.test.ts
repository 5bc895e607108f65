/**
 * Whether transformers finds every weight of a vision-language model that was trained on text alone and exported. Skipped if no Python has it.
 * EDITRL_TEST_PYTHON names another one.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { testFolder } from '../../support/folder.js';
import { exportedTextRun, nets, visionModels } from './text_run.js';

const python = process.env['EDITRL_TEST_PYTHON'] ?? 'python3';
const probe = spawnSync(python, ['-c', 'import torch, transformers'], { encoding: 'utf8' });
const missing = probe.status === 0 ? null : (probe.stderr?.trim().split('\n').at(-1) ?? `there is no ${python}`);
const why = missing === null ? '' : ` (skipped: ${missing}; EDITRL_TEST_PYTHON names another Python)`;
const root = testFolder('unread-vision-python');

/** Prints the keys that are missing, unused or of another shape, for each folder. */
const program = `
import json, sys
import torch
from transformers import AutoModelForImageTextToText
found = {}
for folder in sys.argv[1:]:
    _, report = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    found[folder] = {key: sorted(map(str, value)) for key, value in report.items()}
print(json.dumps(found))
`;

it.skipIf(missing !== null)(`a text run of all weights is exported for transformers${why}`, async () => {
  const folders: string[] = [];
  for (const name of visionModels) folders.push((await exportedTextRun(join(nets, name), join(root, name))).out);
  const ran = spawnSync(python, ['-c', program, ...folders], {
    encoding: 'utf8',
    env: { ...process.env, HF_HUB_OFFLINE: '1', OMP_NUM_THREADS: '1' },
  });
  expect(ran.status, ran.stderr).toBe(0);
  const found = JSON.parse(ran.stdout.trim().split('\n').at(-1) ?? '{}') as Record<string, Record<string, string[]>>;
  expect(Object.keys(found)).toEqual(folders);
  for (const report of Object.values(found)) {
    expect(Object.keys(report)).toContain('missing_keys');
    expect(Object.values(report).flat()).toEqual([]);
  }
});
