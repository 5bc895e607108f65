import { afterEach, beforeEach, expect, it } from 'vitest';
import { freePort } from '../../src/launch/processes/supervise.js';
import { MetricsPages } from '../../src/track/prometheus.js';
import { testFolders } from '../support/folder.js';
import { FakeRun } from './run_directory.js';

const folder = testFolders('prometheus');
let pages: MetricsPages;
let port: number;

beforeEach(async () => {
  pages = new MetricsPages();
  port = await freePort();
});
afterEach(() => pages.close());

function settings(given: object = {}) {
  return { host: '127.0.0.1', port, token_env: null, ...given };
}

async function scrape(headers: Record<string, string> = {}): Promise<{ status: number; text: string }> {
  const response = await fetch(`http://127.0.0.1:${port}/metrics`, { headers });
  return { status: response.status, text: await response.text() };
}

it('shows the latest metrics of several runs on one page', async () => {
  const [one, two] = [new FakeRun(folder(), 'one'), new FakeRun(folder(), 'two')];
  one.iteration(0, { 'validation/sampled/mean': 4 });
  expect(await pages.show(settings(), one, {})).toBe(`http://127.0.0.1:${port}/metrics`);
  await pages.show(settings(), two, {});
  one.iteration(1, { 'policy/loss': NaN });
  one.state('running', 1);
  two.state('finished', 500);
  const { text } = await scrape();
  expect(text).toContain('# TYPE editrl_run_metric gauge\n');
  expect(text.split('\n')).toEqual(
    expect.arrayContaining([
      'editrl_run_iteration{run="one"} 1',
      'editrl_run_iterations{run="two"} 500',
      'editrl_run_state{run="two",state="finished"} 1',
      'editrl_run_state{run="two",state="running"} 0',
      'editrl_run_metric{run="one",name="reward/mean"} 0.1',
      'editrl_run_metric{run="one",name="policy/loss"} NaN',
      'editrl_run_metric{run="one",name="validation/sampled/mean"} 4',
    ]),
  );
});

it('asks for the token that the environment holds', async () => {
  const run = new FakeRun(folder());
  const token = 'a-secret-of-some-length';
  await expect(pages.show(settings({ token_env: 'SCRAPE' }), run, {})).rejects.toMatchObject({
    where: 'track.prometheus.token_env',
    message: 'SCRAPE is empty',
  });
  await pages.show(settings({ token_env: 'SCRAPE' }), run, { SCRAPE: token });
  expect((await scrape()).status).toBe(401);
  expect((await scrape({ authorization: `Bearer ${token}` })).status).toBe(200);
});

it('says what is in the way of a page', async () => {
  const run = new FakeRun(folder());
  await expect(pages.show(settings({ host: '0.0.0.0' }), run, {})).rejects.toMatchObject({
    where: 'track.prometheus',
    message: expect.stringContaining('a token is required there') as string,
  });
  await pages.show(settings(), run, {});
  const others = new MetricsPages();
  await expect(others.show(settings(), run, {})).rejects.toMatchObject({
    message: expect.stringContaining('EADDRINUSE') as string,
    next: 'Choose another track.prometheus.port, host or token_env.',
  });
  await others.close();
});
