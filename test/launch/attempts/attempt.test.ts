import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { programVersions } from '../../../src/launch/attempts/attempt.js';
import { hasFfmpeg } from '../../data/video/odd_files.js';
import { smallSettings as textSettings } from '../../recipes/text_answers/small.js';
import { smallSettings as videoSettings } from '../../recipes/video_actions/small.js';

describe('programVersions', () => {
  it.skipIf(!hasFfmpeg)('has that of ffmpeg for a run that reads videos (skipped without ffmpeg)', () => {
    const { ffmpeg } = programVersions(videoSettings());
    const said = spawnSync('ffmpeg', ['-version']).stdout.toString();
    expect(said).toContain(`ffmpeg version ${ffmpeg} Copyright`);
  });

  it('has none for a run that reads none', () => {
    expect(programVersions(textSettings())).toEqual({});
  });
});
