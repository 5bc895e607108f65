/** When a run looks at its training server, and what it keeps of that. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { TinkerConnection } from '../../src/engines/tinker/connection.js';
import { TinkerSession } from '../../src/engines/tinker/session.js';
import type { Certificate } from '../../src/run/certificate.js';
import { certificateTable } from '../../src/run/report/certificate.js';
import { trainerAnywhere } from '../../src/schema/trainer.js';
import { findOrMakeCertificate } from '../../src/train/server_certificate.js';
import { StubTinker } from '../engines/tinker/stub_tinker.js';
import { connect, format, VOCABULARY, within } from '../policies/tinker/served.js';
import { testFolders } from '../support/folder.js';

const folders = testFolders('certificate');
const stubs: StubTinker[] = [];
afterAll(async () => void (await Promise.all(stubs.map((stub) => stub.close()))));
async function started(leaks = false): Promise<StubTinker> {
  const stub = await new StubTinker({ vocabulary: VOCABULARY, dialect: 'proto', leaks }).listen();
  stubs.push(stub);
  return stub;
}

const engine = { provider: 'cpu', threads: 1 };

function sessionAt(connection: TinkerConnection): TinkerSession {
  const lora = { rank: 8, seed: 1 };
  return new TinkerSession({ connection, dialect: 'auto', baseModel: 'base', lora, tags: [], version: '0.25.0' });
}

async function kept(
  stub: StubTinker,
  folder: string,
  startedBy: readonly string[] | null = null,
): Promise<{ certificate: Certificate; isKept: boolean }> {
  const trainer = trainerAnywhere.parse({ type: 'tinker', base_url: stub.url, base_model: 'base' });
  if (trainer.type !== 'tinker') throw new Error('another trainer');
  const connection = connect(stub);
  const openSession = (): TinkerSession => sessionAt(connection);
  try {
    return await findOrMakeCertificate(
      { policy: { engine }, needsPrompts: true, samplesAhead: false },
      { connection, asked: (work) => work(within()), openSession, trainer, startedBy, format, sight: null },
      { certificate: join(folder, 'certificate.json') },
    );
  } finally {
    await connection.close();
  }
}

describe('the certificate of a training server', () => {
  it('is made once, and again where the server is another one or did not pass', async () => {
    const folder = folders();
    const stub = await started();
    stub.flaw = 'wrong_sign';
    const failed = await kept(stub, folder);
    expect(failed.certificate.findings.find(({ name }) => name === 'direction')?.state).toBe('failed');
    stub.flaw = null;
    const first = await kept(stub, folder);
    expect(first).toMatchObject({ isKept: false, certificate: { reduction: 'sum' } });
    const models = stub.requests.filter(({ path }) => path === '/create_model').length;
    expect(await kept(stub, folder)).toEqual({ certificate: first.certificate, isKept: true });
    expect(stub.requests.filter(({ path }) => path === '/create_model').length).toBe(models + 1);
    const other = await started();
    expect(await kept(other, folder)).toMatchObject({ isKept: false, certificate: { server: { url: other.url } } });
  });

  it('is of a server that is started with the run wherever that listens, and of no other command', async () => {
    const folder = folders();
    const [first, second] = [await started(), await started()];
    const { certificate } = await kept(first, folder, ['serve', '--model', 'base']);
    expect(certificate.server).toMatchObject({ url: first.url, started_by: ['serve', '--model', 'base'] });
    expect(certificateTable(certificate)[0]).toContain('base at a server that is started with the run, looked at');
    expect(await kept(second, folder, ['serve', '--model', 'base'])).toEqual({ certificate, isKept: true });
    expect(await kept(second, folder)).toMatchObject({ isKept: false });
    expect(await kept(second, folder, ['serve', '--model', 'base'])).toMatchObject({ isKept: false });
    expect(await kept(second, folder, ['serve', '--fast'])).toMatchObject({ isKept: false });
  });

  it('that is kept leaves no gradient of a run that was killed before its step', async () => {
    const folder = folders();
    const stub = await started(true);
    await kept(stub, folder);
    const connection = connect(stub);
    const killed = sessionAt(connection);
    const deadline = within();
    await killed.begin(null, deadline);
    const lossInputs = {
      target_tokens: Int32Array.of(2),
      logprobs: Float32Array.of(-2),
      advantages: Float32Array.of(1),
      weights: Float32Array.of(1),
    };
    await killed.train(
      [{ input: [{ type: 'text', tokens: Int32Array.of(1) }], lossInputs }],
      'importance_sampling',
      deadline,
    );
    await killed.close(deadline);
    const isClean = (): boolean => stub.unloaded?.pending.every((one) => one === 0) ?? false;
    expect(isClean()).toBe(false);
    expect((await kept(stub, folder)).isKept).toBe(true);
    expect(isClean()).toBe(true);
    await connection.close();
  });

  it('is shown as a table with a row for each finding', async () => {
    const { certificate } = await kept(await started(), folders());
    const [about, , , ...rows] = certificateTable(certificate);
    expect(about).toContain("it is sent what 'sum' needs");
    expect(rows.map((row) => row.split(/\s+/).slice(0, 2).join(' '))).toEqual(
      certificate.findings.map(({ name, state }) => `${name} ${state}`),
    );
  });

  it('that cannot be read is told of', async () => {
    const folder = folders();
    writeFileSync(join(folder, 'certificate.json'), '{"format": 2}');
    await expect(kept(await started(), folder)).rejects.toMatchObject({
      code: 'run',
      next: expect.stringContaining('Remove the file') as string,
    });
  });
});
