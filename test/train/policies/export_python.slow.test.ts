import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { exportAdapter, exportMerged } from '../../../src/models/adapters/export.js';
import { testFolder } from '../../support/folder.js';
import { adapterCheckpoint } from './exported.js';

/** A Python with transformers and peft, where there is one. */
const python = process.env['EDITRL_TEST_PYTHON'] ?? 'python3';
const probe = spawnSync(python, ['-c', 'import peft, torch, transformers'], { encoding: 'utf8' });
const missing = probe.status === 0 ? null : (probe.stderr?.trim().split('\n').at(-1) ?? `there is no ${python}`);
const folder = testFolder('export-python');

const program = `
import json, sys, torch
from transformers import AutoModelForCausalLM
from peft import PeftModel
base, adapter, merged = sys.argv[1:]
load = lambda folder: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
ids = torch.arange(3, 15).reshape(2, 6)
with torch.no_grad():
    plain = load(base)(ids).logits
    adapted = PeftModel.from_pretrained(load(base), adapter)(ids).logits
    whole = load(merged)(ids).logits
print(json.dumps([(plain - adapted).abs().max().item(), (adapted - whole).abs().max().item(), adapted.abs().max().item()]))
`;

it.skipIf(missing !== null)(
  `the exported adapter in peft and the merged model in transformers have the same logits${missing === null ? '' : ` (skipped: ${missing}; EDITRL_TEST_PYTHON names another Python)`}`,
  () => {
    const { checkpoint, base } = adapterCheckpoint(folder);
    const [adapter, merged] = ['adapter', 'merged'].map((name) => join(folder, name));
    for (const out of [adapter, merged]) mkdirSync(out);
    exportAdapter(checkpoint, adapter);
    exportMerged(checkpoint, merged, { dtype: 'float32' });
    const ran = spawnSync(python, ['-c', program, base, adapter, merged], {
      encoding: 'utf8',
      env: { ...process.env, HF_HUB_OFFLINE: '1' },
    });
    expect(ran.status, ran.stderr).toBe(0);
    const [moved, apart, scale] = JSON.parse(ran.stdout.trim().split('\n').at(-1) ?? '[]') as number[];
    expect(moved).toBeGreaterThan(1e-3);
    expect(apart / scale).toBeLessThan(1e-5);
  },
);
