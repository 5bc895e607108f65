import { describe, expect, it } from 'vitest';
import {
  ConfigError,
  EditrlError,
  EndpointError,
  InternalError,
  JudgeLimitError,
  RunError,
  ServerEndedError,
} from '../../../src/core/errors.js';
import { packError, PEER_LOST, unpackError } from '../../../src/launch/worker/protocol.js';

function acrossTheChannel(error: unknown): Error {
  return unpackError(JSON.parse(JSON.stringify(packError(error))) as ReturnType<typeof packError>);
}

describe('an error of a worker', () => {
  it('is raised by the launcher as the same one, with the same exit code', () => {
    const sent = [
      new ConfigError('found a', { where: 'a.b', next: 'Set b.' }),
      new EndpointError('away', { next: 'Start it.' }),
      new JudgeLimitError('used up', { where: 'a.most', next: 'Raise it.' }),
      new ServerEndedError('was ended by SIGKILL', { where: 'a.serve', next: 'Look at it.' }),
      new InternalError('broken'),
    ];
    for (const error of sent) {
      const got = acrossTheChannel(error);
      expect(got).toBeInstanceOf(error.constructor);
      expect((got as EditrlError).toText()).toBe(error.toText());
      expect(got).toMatchObject({ exitCode: error.exitCode, code: error.code, stack: error.stack });
    }
  });

  it('of a class that the launcher does not know is one of the class above it, with its place and advice', () => {
    class Refused extends EndpointError {}
    const error = new Refused('no room', { where: 'http://server', next: 'Wait.' });
    expect(acrossTheChannel(error)).toBeInstanceOf(EndpointError);
    expect((acrossTheChannel(error) as EditrlError).toText()).toBe(error.toText());
  });

  it('of any other class keeps its name, message and stack', () => {
    const error = new TypeError('x is not a function');
    expect(acrossTheChannel(error)).toMatchObject({ name: 'TypeError', message: error.message, stack: error.stack });
    expect(acrossTheChannel(error)).not.toBeInstanceOf(EditrlError);
    expect(acrossTheChannel('a text').message).toBe('a text');
  });

  it('that follows from the loss of a peer is one of the run', () => {
    expect(unpackError({ name: PEER_LOST, message: 'rank 1 went away' })).toBeInstanceOf(RunError);
  });
});
