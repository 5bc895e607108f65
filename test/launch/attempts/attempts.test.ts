import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { programVersions, restartDelayS } from '../../../src/launch/attempts/attempts.js';
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

it('waits ever longer before it starts a run again that gets no further', () => {
  expect([0, 1, 2, 3, 6, 7, 20].map(restartDelayS)).toEqual([0, 1, 2, 4, 32, 60, 60]);
});
