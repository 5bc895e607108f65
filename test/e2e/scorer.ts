/** Ways in which the stub judge answers a run. */
import { createHash } from 'node:crypto';
import { scoresText, type Behave, type StubRequest } from '../rewards/judge/stub_judge.js';

/**
 * Scores that depend on the pictures alone and differ between them, so that every group has a spread and an untrained
 * policy learns something in every iteration.
 */
export const scoreByPictures: Behave = (request) => {
  const digest = createHash('sha256').update(request.images.join()).digest();
  return scoresText(digest[0] % 11, digest[1] % 11);
};

/** Whether a question is the small one by which a run sees whether a judge works. */
export function isCanary({ text }: StubRequest): boolean {
  return text.startsWith('This is a check of the connection.');
}
