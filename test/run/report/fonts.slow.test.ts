import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { testFolder } from '../../support/folder.js';
import { compileSources } from '../compiled.js';

const base = testFolder('fonts');

describe('text without fonts', () => {
  it('is chosen on a machine without fonts', () => {
    const compiled = compileSources();
    const config = join(base, 'fonts.conf');
    writeFileSync(config, `<?xml version="1.0"?><fontconfig><dir>${join(base, 'no_fonts')}</dir></fontconfig>`);
    const script = `
      const { availableTextStyle } = await import(process.argv[1] + '/run/report/svg.js');
      process.stdout.write(await availableTextStyle());`;
    const asked = spawnSync(process.execPath, ['--input-type=module', '-e', script, compiled.dir], {
      env: { ...process.env, FONTCONFIG_FILE: config },
      encoding: 'utf8',
    });
    compiled.remove();
    expect(asked.stdout).toBe('strokes');
  });
});
