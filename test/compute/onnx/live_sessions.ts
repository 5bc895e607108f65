/** Counts what the runtime compiles and frees. */
import * as ort from 'onnxruntime-node';
import { vi } from 'vitest';

export interface LiveSessions {
  readonly made: number;
  readonly now: number;
  readonly most: number;
}

type Create = (model: Uint8Array, options?: ort.InferenceSession.SessionOptions) => Promise<ort.InferenceSession>;

/** From now on, until mocks are restored; `counts` says of which. */
export function liveSessions(
  counts: (options: ort.InferenceSession.SessionOptions) => boolean = () => true,
): LiveSessions {
  const live = { made: 0, now: 0, most: 0 };
  const create = ort.InferenceSession.create.bind(ort.InferenceSession) as Create;
  const counting: Create = async (model, options = {}) => {
    const session = await create(model, options);
    if (!counts(options)) return session;
    live.made += 1;
    live.now += 1;
    live.most = Math.max(live.most, live.now);
    const release = session.release.bind(session);
    session.release = async () => {
      live.now -= 1;
      await release();
    };
    return session;
  };
  vi.spyOn(ort.InferenceSession, 'create').mockImplementation(counting);
  return live;
}
