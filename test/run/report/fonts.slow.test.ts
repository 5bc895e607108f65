import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { testFolder } from '../../support/folder.js';
import { compileSources } from '../compiled.js';

const base = testFolder('fonts');

describe('text on a machine without fonts', () => {
  it('is drawn with a font that has the letters', () => {
    const compiled = compileSources();
    const config = join(base, 'fonts.conf');
    writeFileSync(config, `<?xml version="1.0"?><fontconfig><dir>${join(base, 'no_fonts')}</dir></fontconfig>`);
    // Without a font every character comes out as nothing or as a box of one width.
    const script = `
      import { createRequire } from 'node:module';
      const sharp = createRequire(process.argv[1] + '/')('sharp');
      const { svgToPng, FONT } = await import(process.argv[1] + '/run/report/svg.js');
      const inked = async (word) => {
        const text = \`<text y="30" font-family="\${FONT}, sans-serif" font-size="24">\${word}</text>\`;
        const png = await svgToPng(\`<svg xmlns="http://www.w3.org/2000/svg" width="400" height="40">\${text}</svg>\`, 1);
        return (await sharp(png).trim().toBuffer({ resolveWithObject: true })).info.width;
      };
      process.stdout.write(JSON.stringify([await inked('WWWWWWWW'), await inked('iiiiiiii')]));`;
    const asked = spawnSync(process.execPath, ['--input-type=module', '-e', script, compiled.dir], {
      env: { ...process.env, FONTCONFIG_FILE: config },
      encoding: 'utf8',
    });
    compiled.remove();
    expect(asked.stderr).toBe('');
    const [wide, narrow] = JSON.parse(asked.stdout) as [number, number];
    expect(narrow).toBeGreaterThan(20);
    expect(wide).toBeGreaterThan(3 * narrow);
  });
});
