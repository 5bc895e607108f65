/** Asks servers for one picture at a time. */
import type { OutageListener } from '../../balance/outage.js';
import type { AttemptResult } from '../../balance/ask.js';
import { AwaitedRemote, RUN_AGAIN, type AwaitedMember, type ReplyOutcome } from '../../balance/remote.js';
import type { Clock } from '../../core/clock.js';
import type { Deadline } from '../../core/deadline.js';
import { EndpointError } from '../../core/errors.js';
import type { StatusTable } from '../../http/meaning.js';
import type { AskedServersSettings } from '../../schema/images_api.js';
import type { PictureReply } from './picture.js';

/** Before anything was drawn, a server that fails this often is taken for the wrong one. */
export const FIRST_ATTEMPTS = 5;

/** What statuses without a picture mean for every picture server. */
export const PICTURE_STATUSES: StatusTable<'busy' | 'away' | 'failed' | 'refused'> = {
  408: 'failed',
  429: 'busy',
  502: 'away',
  503: 'away',
  504: 'away',
  '5xx': 'failed',
  rest: 'refused',
};

export interface PictureRemoteOptions<M extends AwaitedMember, Asked> extends OutageListener {
  /** The server's name in messages. */
  readonly name: string;
  readonly members: readonly M[];
  readonly settings: Pick<AskedServersSettings, 'timeout_s' | 'max_attempts'>;
  readonly clock?: Clock | undefined;
  /** Uniform in [0, 1), for back-off jitter only. */
  readonly random?: (() => number) | undefined;
  readonly attempt: (member: M, asked: Asked, within: Deadline) => Promise<AttemptResult<ReplyOutcome<PictureReply>>>;
}

export function pictureRemote<M extends AwaitedMember, Asked>(
  options: PictureRemoteOptions<M, Asked>,
): AwaitedRemote<M, Asked, PictureReply> {
  const { name, settings } = options;
  return new AwaitedRemote({
    ...options,
    policy: {
      maxAttempts: settings.max_attempts,
      attemptTimeoutMs: settings.timeout_s * 1000,
      retryAfterCapMs: 60_000,
    },
    error: (found, { url: where, next = RUN_AGAIN }) =>
      new EndpointError(`the ${name} gives no picture: ${found}`, { where, next }),
  });
}
